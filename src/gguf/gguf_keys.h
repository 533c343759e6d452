// The description of a model in a GGUF file, read key by key.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_header.h"

namespace piton {

// A model as a GGUF file describes it: its keys, the tables of numbers that belong to its
// configuration (rope_freqs.weight), and which tensors there are.
struct GgufDescription {
  std::string architecture;  // general.architecture
  std::vector<GgufEntry> entries;
  std::map<std::string, std::vector<float>> tables;
  std::map<std::string, std::vector<std::int64_t>> shapes;  // of tensors, rows first

  // Adds a key of the architecture; `key` is without the name of the architecture.
  void add(const std::string& key, GgufValue value);
};

// Reads keys of the architecture, given without its name. Each function throws Error(kData) naming
// file and key if the value is of another kind or out of range.
class GgufKeys {
 public:
  // `where` names the file in messages. `description` must outlive this object.
  GgufKeys(const GgufDescription& description, std::string where);

  const std::string& where() const { return where_; }
  const GgufDescription& description() const { return description_; }

  // Null if it is missing.
  const GgufValue* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  bool has_tensor(const std::string& name) const { return description_.shapes.contains(name); }
  // size(): a positive integer below 2^31. A missing key gives `otherwise`, or is an error without
  // it. count(): the same, or 0.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) const;
  std::int64_t count(const std::string& key, std::optional<std::int64_t> otherwise = {}) const;
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;

  // The value of a full key of Piton's own, which other programs ignore. Null if it is missing.
  const GgufValue* find_own(const std::string& key) const;

  // Throws Error(kData): Piton does not support the value of `key`; `wanted` lists what it
  // supports.
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

 private:
  std::int64_t integer(const std::string& key, std::int64_t least, const std::string& wanted,
                       std::optional<std::int64_t> otherwise) const;

  const GgufDescription& description_;
  std::string where_;
};

}  // namespace piton
