// Rewrites a file of torch.save with a few of its values changed. Objects keep their states;
// classes and values that denote types become None.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/values.h"
#include "pickle/torch_file.h"
#include "pickle/torch_writer.h"

namespace piton {

// By path: keys and places from the root on, with "/" between them.
struct FileEdits {
  std::map<std::string, std::int64_t> numbers;  // instead of a number or a tensor
  std::map<std::string, std::int64_t> lengths;  // of vectors: so many elements of them stay
  std::set<std::string> dropped;                // of a dict
  std::map<std::string, std::string> renamed;   // keys of a dict
  std::map<std::string, std::vector<std::int64_t>> lists = {};  // of numbers, instead of a value
  std::string narrowed = {};  // a dict whose F32 tensors become BF16
};

class EditedFile {
 public:
  EditedFile(const std::filesystem::path& path, const FileEdits& edits)
      : file_(path), edits_(edits), out_(path.string() + ".edited") {
    write(file_.root(), "");
    for (const Block& one : blocks_) {
      std::vector<std::byte> block(static_cast<std::size_t>(one.bytes));
      file_.file().read_at(one.offset, block);
      if (one.narrowed) {
        std::vector<std::byte> half(block.size() / 2);
        convert_values(block.data(), DType::kF32, half.data(), DType::kBF16, one.bytes / 4);
        block = std::move(half);
      }
      out_.append(block);
    }
    out_.commit();
    std::filesystem::rename(path.string() + ".edited", path);
  }

 private:
  using Kind = PickleValue::Kind;

  struct Block {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    bool narrowed = false;
  };

  void write_pairs(const PickleValue& dict, const std::string& path) {
    for (const auto& [key, value] : dict.pairs) {
      const std::string name =
          key->kind == Kind::kInt ? fmt::format("{}", key->integer) : key->text;
      const std::string inner = path.empty() ? name : path + "/" + name;
      if (edits_.dropped.contains(inner)) continue;
      const auto renamed = edits_.renamed.find(inner);
      if (renamed == edits_.renamed.end())
        write(*key, "");
      else
        out_.text(renamed->second);
      write(*value, inner);
    }
  }

  void write(const PickleValue& value, const std::string& path) {
    const auto number = edits_.numbers.find(path);
    if (number != edits_.numbers.end()) return out_.integer(number->second);
    const auto list = edits_.lists.find(path);
    if (list != edits_.lists.end()) {
      out_.begin_list();
      for (const std::int64_t one : list->second) out_.integer(one);
      return out_.end_list();
    }
    switch (value.kind) {
      case Kind::kBool:
        return out_.boolean(value.truth);
      case Kind::kInt:
        return out_.integer(value.integer);
      case Kind::kFloat:
        return out_.number(value.number);
      case Kind::kText:
        return out_.text(value.text);
      case Kind::kList:
        out_.begin_list();
        for (std::size_t i = 0; i < value.items.size(); ++i)
          write(*value.items[i], fmt::format("{}/{}", path, i));
        return out_.end_list();
      case Kind::kDict:
        out_.begin_dict();
        write_pairs(value, path);
        return out_.end_dict();
      case Kind::kTensor:
        return write_tensor(value, path);
      case Kind::kObject:
        if (value.state == nullptr || value.text != "argparse.Namespace") return out_.none();
        out_.begin_object("argparse", "Namespace");
        write_pairs(*value.state, path);
        return out_.end_object();
      default:
        return out_.none();
    }
  }

  void write_tensor(const PickleValue& value, const std::string& path) {
    TorchTensor tensor = file_.tensor(value, path);
    const auto length = edits_.lengths.find(path);
    if (length != edits_.lengths.end()) tensor.shape[0] = length->second;
    const bool narrowed = tensor.dtype == "F32" && !edits_.narrowed.empty() &&
                          path.starts_with(edits_.narrowed + "/");
    out_.tensor(narrowed ? "BF16" : tensor.dtype, tensor.shape);
    std::int64_t bytes = torch_width(tensor.dtype);
    for (const std::int64_t size : tensor.shape) bytes *= size;
    blocks_.push_back({tensor.offset, bytes, narrowed});
  }

  TorchFile file_;
  FileEdits edits_;
  TorchWriter out_;
  std::vector<Block> blocks_;
};

}  // namespace piton
