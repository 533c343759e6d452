// Writes files that torch.load(weights_only=True) reads: a tree of dicts, lists, numbers, text and
// tensors, then the bytes of the tensors in the order of the tree.
//
//   TorchWriter out(path);
//   out.begin_dict();
//   out.text("weight");
//   out.tensor("F32", {2, 3});
//   out.end_dict();
//   out.append(bytes);      // of all tensors, in order; parts of a tensor are fine
//   out.commit();
//
// Objects of classes other than those that torch knows (begin_object) need weights_only=False, or
// torch.serialization.add_safe_globals.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "pickle/pickle_writer.h"
#include "pickle/zip.h"

namespace piton {

class TorchWriter : public PickleWriter {
 public:
  explicit TorchWriter(const std::filesystem::path& path) : zip_(path) {}
  // The same appended to a file, which outlives this and which the caller commits.
  explicit TorchWriter(AtomicFile& file) : zip_(file) {}

  // A row-major tensor with its own storage. `dtype` in the spelling of safetensors.
  void tensor(std::string_view dtype, std::span<const std::int64_t> shape);

  // Bytes of tensors. The first call ends the tree.
  void append(std::span<const std::byte> bytes);
  // Asserts that all bytes were appended.
  void commit();

 private:
  void end_tree();
  void next_storage();

  ZipWriter zip_;
  std::vector<std::int64_t> storages_;  // bytes
  bool tree_ended_ = false;
  std::size_t storage_ = 0;  // that is being written
  std::int64_t left_ = 0;    // bytes of it
};

}  // namespace piton
