// A model's config.json, as Transformers 4 and 5 write it, read key by key.
//
// Nothing of it is trusted: text that is not JSON, nests deeper than base/nesting.h allows, or has
// a value of another kind or range than a reader of its key wants is Error(kData) that names file
// and key. Keys that nobody reads are kept (text()) and have no effect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace piton {

class HfConfig {
 public:
  // `where` names the file in messages.
  HfConfig(const std::string& text, std::string where);
  // folder/config.json.
  static HfConfig read(const std::filesystem::path& folder);

  const std::string& where() const { return where_; }
  // The file as it is.
  const std::string& text() const { return text_; }

  // There, and not null.
  bool has(const std::string& key) const;
  // There, perhaps null.
  bool lists(const std::string& key) const;
  // Positive integers below 2^31; `otherwise` where has() is false. Without it the key must be
  // there.
  std::int64_t size(const std::string& key, std::optional<std::int64_t> otherwise = {}) const;
  double number(const std::string& key, std::optional<double> otherwise = {}) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string word(const std::string& key, std::optional<std::string> otherwise = {}) const;
  std::vector<std::string> words(const std::string& key) const;  // none: empty
  std::vector<double> numbers(const std::string& key) const;     // none: empty

  // The object under `key`; empty where it is not there. Its messages name "key.inner".
  HfConfig object(const std::string& key) const;

  // Throws Error(kData): the key's value is not one that Piton has; `wanted` says which are.
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted) const;

 private:
  HfConfig() = default;
  const nlohmann::ordered_json* find(const std::string& key) const;
  [[noreturn]] void wrong(const std::string& key, const std::string& wanted) const;

  std::string where_;
  std::string prefix_;  // of keys, in messages
  std::string text_;
  std::shared_ptr<const nlohmann::ordered_json> document_;
};

}  // namespace piton
