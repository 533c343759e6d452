// Which keys of a record have which meaning, and their values as texts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

// Names of a handler's fields in the files: its own, changed by --map-keys.
class RecordFields {
 public:
  // `fields`: the meanings and their usual keys, "prompt=instruction query=input?"; a question mark
  // marks keys that a record need not have. `tags`, the same for the words inside a message, may be
  // empty. `map_keys`: JSON as {"prompt": "question", "tags": {"role_tag": "role"}}, or "".
  // A meaning that a record need not have may be mapped to "": no record has it.
  // Throws Error(kUsage) for JSON of another form and for meanings that do not exist, with those
  // that do.
  RecordFields(std::string_view fields, std::string_view tags, const std::string& map_keys);

  // The key of a meaning; "": no record has it. Asserts that there is such a meaning.
  const std::string& key(std::string_view meaning) const;
  bool has(std::string_view meaning) const { return names_.contains(std::string(meaning)); }
  // The word of a tag, and whether the user gave it.
  const std::string& tag(std::string_view meaning) const;
  bool is_given(std::string_view tag) const;

  // Keys that every record has, and keys that it may have: columns of a table.
  std::vector<std::string> required() const;
  std::vector<std::string> optional() const;

 private:
  struct Name {
    std::string key;
    bool optional = false;
    bool given = false;
  };
  static std::map<std::string, Name> parse(std::string_view text);
  static void set(std::map<std::string, Name>& names, const std::string& meaning,
                  const nlohmann::json& value, std::string_view what);

  std::map<std::string, Name> names_;
  std::map<std::string, Name> tags_;
};

// Whether `key` is there and not null; not for "", the key of what no record has.
bool holds(const nlohmann::ordered_json& record, const std::string& key);
// The value of `key`, a text. Throws Error(kData) with the keys that exist, or with the type that
// the value has.
std::string text_at(const nlohmann::ordered_json& record, const std::string& key);
// The same, but "" where the key is absent or null.
std::string optional_text_at(const nlohmann::ordered_json& record, const std::string& key);
// The value of `key`, a list; a text of JSON, as in a table, is read. Throws as text_at().
nlohmann::ordered_json list_at(const nlohmann::ordered_json& record, const std::string& key);
// A value as JSON text: a text as it is, null or absent as "".
std::string json_text_at(const nlohmann::ordered_json& record, const std::string& key);

// Without white space (as Python's str.strip) at both ends.
std::string_view stripped(std::string_view text);

}  // namespace piton
