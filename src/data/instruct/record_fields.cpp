#include "data/instruct/record_fields.h"

#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "base/nesting.h"
#include "text/unicode/characters.h"

namespace piton {
namespace {

// Python's white space is that of Unicode and four separators of ASCII.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::vector<std::string> keys_of(const nlohmann::ordered_json& record) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : record.items()) keys.push_back(key);
  return keys;
}

const nlohmann::ordered_json& value_at(const nlohmann::ordered_json& record,
                                       const std::string& key) {
  const auto at = record.find(key);
  if (at != record.end()) return *at;
  const std::vector<std::string> keys = keys_of(record);
  throw Error(Fault::kData, "no key \"{}\"; it has {}", key,
              keys.empty() ? "none" : listed(keys, 12));
}

[[noreturn]] void refuse(const std::string& key, const nlohmann::ordered_json& value,
                         std::string_view wanted) {
  throw Error(Fault::kData, "key \"{}\" holds {} {}, wanted {}", key,
              value.is_null()                         ? "the value"
              : value.is_array() || value.is_object() ? "an"
                                                      : "a",
              value.type_name(), wanted);
}

}  // namespace

std::map<std::string, RecordFields::Name> RecordFields::parse(std::string_view text) {
  std::map<std::string, Name> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t middle = word.find('=');
    PITON_ASSERT(middle != word.npos, "field {}", word);
    Name name;
    name.optional = word.ends_with('?');
    if (name.optional) word.remove_suffix(1);
    name.key = word.substr(middle + 1);
    names.emplace(word.substr(0, middle), std::move(name));
  }
  return names;
}

void RecordFields::set(std::map<std::string, Name>& names, const std::string& meaning,
                       const nlohmann::json& value, std::string_view what) {
  const auto at = names.find(meaning);
  if (at == names.end()) {
    std::vector<std::string> known;
    for (const auto& [name, rest] : names) known.push_back(name);
    throw Error(Fault::kUsage, "--map-keys: no {} \"{}\"; there are {}", what, meaning,
                known.empty() ? "none" : listed(known, known.size()));
  }
  const bool is_tag = what == "tag";
  const bool is_absent = value.is_string() && value.get_ref<const std::string&>().empty();
  if (!value.is_string() || (is_absent && (is_tag || !at->second.optional))) {
    throw Error(Fault::kUsage, "--map-keys: \"{}\" is {}, wanted the name of a {}{}", meaning,
                value.dump(), is_tag ? "tag" : "key",
                is_absent && !is_tag ? ", since every record has this field" : "");
  }
  at->second.key = value.get<std::string>();
  at->second.given = true;
}

RecordFields::RecordFields(std::string_view fields, std::string_view tags,
                           const std::string& map_keys)
    : names_(parse(fields)), tags_(parse(tags)) {
  if (map_keys.empty()) return;
  check_json_depth(map_keys, "--map-keys");
  const auto map = read_json_or_discarded<nlohmann::json>(map_keys);
  if (!map.is_object()) {
    throw Error(Fault::kUsage,
                "--map-keys: got {}, wanted a JSON object, as in {{\"prompt\": "
                "\"question\"}}",
                map_keys);
  }
  for (const auto& [meaning, value] : map.items()) {
    if (meaning != "tags" || tags_.empty()) {
      set(names_, meaning, value, "field");
      continue;
    }
    if (!value.is_object()) {
      throw Error(Fault::kUsage,
                  "--map-keys: \"tags\" is {}, wanted an object, as in "
                  "{{\"role_tag\": \"role\"}}",
                  value.dump());
    }
    for (const auto& [tag, word] : value.items()) set(tags_, tag, word, "tag");
  }
}

const std::string& RecordFields::key(std::string_view meaning) const {
  const auto at = names_.find(std::string(meaning));
  PITON_ASSERT(at != names_.end(), "no field {}", meaning);
  return at->second.key;
}

const std::string& RecordFields::tag(std::string_view meaning) const {
  const auto at = tags_.find(std::string(meaning));
  PITON_ASSERT(at != tags_.end(), "no tag {}", meaning);
  return at->second.key;
}

bool RecordFields::is_given(std::string_view tag) const {
  const auto at = tags_.find(std::string(tag));
  return at != tags_.end() && at->second.given;
}

std::vector<std::string> RecordFields::required() const {
  std::vector<std::string> keys;
  for (const auto& [meaning, name] : names_) {
    if (!name.optional) keys.push_back(name.key);
  }
  return keys;
}

std::vector<std::string> RecordFields::optional() const {
  std::vector<std::string> keys;
  for (const auto& [meaning, name] : names_) {
    if (name.optional && !name.key.empty()) keys.push_back(name.key);
  }
  return keys;
}

std::string text_at(const nlohmann::ordered_json& record, const std::string& key) {
  const nlohmann::ordered_json& value = value_at(record, key);
  if (!value.is_string()) refuse(key, value, "text");
  return value.get<std::string>();
}

bool holds(const nlohmann::ordered_json& record, const std::string& key) {
  if (key.empty()) return false;
  const auto at = record.find(key);
  return at != record.end() && !at->is_null();
}

std::string optional_text_at(const nlohmann::ordered_json& record, const std::string& key) {
  return holds(record, key) ? text_at(record, key) : "";
}

nlohmann::ordered_json list_at(const nlohmann::ordered_json& record, const std::string& key) {
  const nlohmann::ordered_json& value = value_at(record, key);
  if (value.is_array()) return value;
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    check_json_depth(text, "key \"" + key + "\"");
    auto list = read_json_or_discarded<nlohmann::ordered_json>(text);
    if (list.is_array()) return list;
  }
  refuse(key, value, "a list of messages");
}

std::string json_text_at(const nlohmann::ordered_json& record, const std::string& key) {
  if (!holds(record, key)) return "";
  const nlohmann::ordered_json& value = record.at(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char first = decode_utf8(text, 0);
    if (!is_python_space(first.value)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    const Utf8Char last = decode_utf8_back(text);
    if (!is_python_space(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

}  // namespace piton
