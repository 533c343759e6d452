#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/files/files.h"
#include "text/files/json_reading.h"
#include "text/files/tokenizer_folder.h"
#include "text/models/vocabulary.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Configurations are small: a larger file is not one.
constexpr std::int64_t kConfigLimit = 64 << 20;

// The text of the file with a name; nullopt: there is no such file.
using FindText = std::function<std::optional<std::string>(const char* name)>;

std::optional<Json> read_json(const FindText& find, const char* name, const std::string& where) {
  const std::optional<std::string> text = find(name);
  if (!text) return std::nullopt;
  Json json = parse_json(*text, where);
  if (!json.is_object()) {
    throw Error(Fault::kData, "{}: got {}, wanted an object; fix the file", where,
                json.type_name());
  }
  return json;
}

// A token is given as its text or as an object with "content".
void read_token(const Json& json, const char* key, const std::string& where,
                std::optional<std::string>& token) {
  const Json& value = field(json, key, where);
  if (value.is_string()) token = value.get<std::string>();
  if (value.is_object()) token = need_text(value, "content", where);
}

std::optional<bool> optional_bool(const Json& json, const char* key, const std::string& where) {
  if (field(json, key, where).is_null()) return std::nullopt;
  return bool_field(json, key, where, false);
}

void read_tokens(const Json& json, const std::string& where, TokenizerConfig& config) {
  read_token(json, "bos_token", where, config.bos);
  read_token(json, "eos_token", where, config.eos);
  read_token(json, "pad_token", where, config.pad);
  read_token(json, "unk_token", where, config.unk);
  read_token(json, "cls_token", where, config.cls);
  read_token(json, "sep_token", where, config.sep);
  read_token(json, "mask_token", where, config.mask);
}

std::int32_t checked_id(std::int64_t id, const std::string& where) {
  if (id < 0 || id > PieceVocabulary::kMaxId) {
    throw Error(Fault::kData, "{}: the id of an added token: got {}, wanted 0 .. {}", where, id,
                PieceVocabulary::kMaxId);
  }
  return static_cast<std::int32_t>(id);
}

void read_added_decoder(const Json& json, const std::string& where, TokenizerConfig& config) {
  if (field(json, "added_tokens_decoder", where).is_null()) return;
  for (const auto& [key, value] : need_object(json, "added_tokens_decoder", where).items()) {
    const bool digits =
        !key.empty() && key.size() < 10 &&
        std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) {
      throw Error(Fault::kData, "{}: added_tokens_decoder: got the id \"{}\", wanted a number",
                  where, key);
    }
    AddedToken token;
    token.id = checked_id(std::stoll(key), where);
    token.content = need_text(value, "content", where);
    token.special = bool_field(value, "special", where, false);
    token.single_word = bool_field(value, "single_word", where, false);
    token.lstrip = bool_field(value, "lstrip", where, false);
    token.rstrip = bool_field(value, "rstrip", where, false);
    token.normalized = bool_field(value, "normalized", where, !token.special);
    config.added.push_back(std::move(token));
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
}

TokenizerConfig read_config(const fs::path& folder, const FindText& find) {
  TokenizerConfig config;
  config.where = folder.string();
  const auto place = [&](const char* name) { return (folder / name).string(); };
  constexpr const char* kMap = "special_tokens_map.json";
  if (const auto map = read_json(find, kMap, place(kMap))) read_tokens(*map, place(kMap), config);
  constexpr const char* kSettings = "tokenizer_config.json";
  if (const auto json = read_json(find, kSettings, place(kSettings))) {
    const std::string where = place(kSettings);
    read_tokens(*json, where, config);
    config.tokenizer_class = text_field(*json, "tokenizer_class", where);
    if (config.tokenizer_class.ends_with("Fast")) {
      config.tokenizer_class.resize(config.tokenizer_class.size() - 4);
    }
    // Early LLaMA files spell the class in capitals.
    if (config.tokenizer_class == "LLaMATokenizer") config.tokenizer_class = "LlamaTokenizer";
    config.add_bos = optional_bool(*json, "add_bos_token", where);
    config.add_eos = optional_bool(*json, "add_eos_token", where);
    config.add_prefix_space = bool_field(*json, "add_prefix_space", where, false);
    config.do_lower_case = bool_field(*json, "do_lower_case", where, true);
    config.strip_accents = optional_bool(*json, "strip_accents", where);
    config.chinese_characters = bool_field(*json, "tokenize_chinese_chars", where, true);
    read_added_decoder(*json, where, config);
  }
  constexpr const char* kAdded = "added_tokens.json";
  const auto added = read_json(find, kAdded, place(kAdded));
  if (added && config.added.empty()) {
    const std::string where = place(kAdded);
    for (const auto& [content, id] : added->items()) {
      if (!id.is_number_integer()) {
        throw Error(Fault::kData, "{}: the id of \"{}\" is not an integer", where, content);
      }
      AddedToken token;
      token.id = checked_id(id.get<std::int64_t>(), where);
      token.content = content;
      token.special = true;
      config.added.push_back(std::move(token));
    }
  }
  return config;
}

}  // namespace

std::string TokenizerConfig::fingerprint() const {
  TokenizerConfig silent;
  silent.where = where;
  Json json;
  const auto say = [&](const char* key, const auto& value, const auto& unsaid) {
    if (value == unsaid) return;
    if constexpr (requires { value.has_value(); }) {
      json[key] = *value;
    } else {
      json[key] = value;
    }
  };
  say("class", tokenizer_class, silent.tokenizer_class);
  say("bos", bos, silent.bos);
  say("eos", eos, silent.eos);
  say("pad", pad, silent.pad);
  say("unk", unk, silent.unk);
  say("cls", cls, silent.cls);
  say("sep", sep, silent.sep);
  say("mask", mask, silent.mask);
  say("add_bos", add_bos, silent.add_bos);
  say("add_eos", add_eos, silent.add_eos);
  say("prefix_space", add_prefix_space, silent.add_prefix_space);
  say("lower_case", do_lower_case, silent.do_lower_case);
  say("strip_accents", strip_accents, silent.strip_accents);
  say("chinese_characters", chinese_characters, silent.chinese_characters);
  for (const AddedToken& token : added) {
    json["added"].push_back({token.id, token.content, token.single_word, token.lstrip, token.rstrip,
                             token.normalized, token.special});
  }
  return json.is_null() ? "" : json.dump();
}

TokenizerConfig read_tokenizer_config(const fs::path& folder) {
  return read_config(folder, [&](const char* name) -> std::optional<std::string> {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) return std::nullopt;
    return read_text_file(folder / name, kConfigLimit);
  });
}

TokenizerConfig read_tokenizer_config(const std::map<std::string, std::string>& files,
                                      const std::string& where) {
  return read_config(where, [&](const char* name) -> std::optional<std::string> {
    const auto found = files.find(name);
    return found == files.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace piton
