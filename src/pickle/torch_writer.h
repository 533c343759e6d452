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
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pickle/zip.h"

namespace piton {

class TorchWriter {
 public:
  explicit TorchWriter(const std::filesystem::path& path);

  void none() { pickle_ += 'N'; }
  void boolean(bool value) { pickle_ += value ? '\x88' : '\x89'; }
  void integer(std::int64_t value);
  void number(double value);
  void text(std::string_view value);
  void begin_dict() { pickle_ += "}("; }  // keys and values in turn
  void end_dict() { pickle_ += 'u'; }
  // An argparse.Namespace, of names and values in turn; torch.load reads it where weights_only is
  // False or the class is allowed.
  void begin_namespace() { pickle_ += "cargparse\nNamespace\n)\x81}("; }
  void end_namespace() { pickle_ += "ub"; }
  void begin_list() { pickle_ += "]("; }
  void end_list() { pickle_ += 'e'; }
  // A row-major tensor with its own storage. `dtype` in the spelling of safetensors.
  void tensor(std::string_view dtype, std::span<const std::int64_t> shape);

  // Bytes of tensors. The first call ends the tree.
  void append(std::span<const std::byte> bytes);
  // Asserts that all bytes were appended.
  void commit();

 private:
  void numbers(std::span<const std::int64_t> values);
  void end_tree();
  void next_storage();

  ZipWriter zip_;
  std::string pickle_;
  std::vector<std::int64_t> storages_;  // bytes
  bool tree_ended_ = false;
  std::size_t storage_ = 0;  // that is being written
  std::int64_t left_ = 0;    // bytes of it
};

}  // namespace piton
