// Reads a model's config.json, as written by Transformers 4 and 5, key by key.
//
// Nothing in it is trusted: Error(kData) with file and key for text that is not JSON, that nests
// deeper than base/nesting.h allows, or that has a value of the wrong kind or range. Keys that
// nobody reads are kept (text()) and have no effect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace piton {

class HfConfig {
 public:
  // `where` names the file in messages.
  HfConfig(const std::string& text, std::string where);
  // Reads folder/config.json. Of a model with a vision part, whose language model is described
  // under "text_config", it has that description alone, as Transformers writes it for the language
  // model: then is_language_part() is true.
  static HfConfig read(const std::filesystem::path& folder);
  bool is_language_part() const { return is_language_part_; }

  const std::string& where() const { return where_; }
  // The unchanged text of the file.
  const std::string& text() const { return text_; }

  // The key exists and is not null.
  bool has(const std::string& key) const;
  // There are no keys.
  bool empty() const;
  // The key exists, and is this word.
  bool is_word(const std::string& key, std::string_view word) const;
  // The key exists, and is a list.
  bool is_list(const std::string& key) const;
  // The key exists, perhaps as null.
  bool lists(const std::string& key) const;
  // Positive integers below 2^31; `otherwise` if has() is false. Without `otherwise` the key is
  // required.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) const;
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, std::optional<std::string> otherwise = {}) const;
  std::vector<std::string> words(const std::string& key) const;  // absent: empty
  std::vector<double> numbers(const std::string& key) const;     // absent: empty
  // A list of two sizes, which is required.
  std::pair<std::int64_t, std::int64_t> two_sizes(const std::string& key) const;

  // The least and the largest number of a list of two; "Infinity", as Python writes it and as
  // Transformers names it, is one too. Absent: none.
  std::optional<std::pair<double, double>> bounds(const std::string& key) const;

  // All keys, in order.
  std::vector<std::string> keys() const;
  // The object under `key`; empty if absent. Its messages name "key.inner".
  HfConfig object(const std::string& key) const;

  // Throws Error(kData): Piton does not support the key's value; `wanted` lists the supported ones.
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

 private:
  HfConfig() = default;
  void take_language_part();
  const nlohmann::ordered_json* find(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const;

  bool is_language_part_ = false;
  std::string where_;
  std::string prefix_;  // of keys, in messages
  std::string text_;
  std::shared_ptr<const nlohmann::ordered_json> document_;
};

}  // namespace piton
