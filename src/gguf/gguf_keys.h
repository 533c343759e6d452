// What a GGUF file says of its model, read key by key.
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

  // Keys of the architecture: `key` without its name in front.
  void add(const std::string& key, GgufValue value);
};

// Keys are given without the architecture's name. Each throws Error(kData) naming file and key for
// a value of another kind or range.
class GgufKeys {
 public:
  // `where` names the file in messages. `description` must outlive this.
  GgufKeys(const GgufDescription& description, std::string where);

  const std::string& where() const { return where_; }
  const GgufDescription& description() const { return description_; }

  bool has(const std::string& key) const { return find(key) != nullptr; }
  bool has_tensor(const std::string& name) const { return description_.shapes.contains(name); }
  // Positive integers below 2^31. Without `otherwise` the key must be there.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) const;
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, const std::string& otherwise) const;

  // Of a whole key: one of Piton's own, which other programs pass over.
  const GgufValue* find_own(const std::string& key) const;

  // Throws Error(kData): the value is not one that Piton has; `wanted` says which are.
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

 private:
  const GgufValue* find(const std::string& key) const;

  const GgufDescription& description_;
  std::string where_;
};

}  // namespace piton
