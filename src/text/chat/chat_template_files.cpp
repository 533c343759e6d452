#include "text/chat/chat_template_files.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/files/files.h"
#include "base/listed.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Templates and configurations are small: a larger file is not one.
constexpr std::int64_t kSmallFileLimit = 64 << 20;

bool is_regular(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The object in a file; null if there is no file.
Json read_object(const fs::path& file) {
  if (!is_regular(file)) return nullptr;
  Json json = read_json_or_discarded<Json>(read_text_file(file, kSmallFileLimit));
  if (!json.is_object()) {
    throw Error(Fault::kData, "{}: got no JSON object, wanted one; fix the file", file.string());
  }
  return json;
}

void add_template(ChatTemplateFiles& files, ChatTemplateSource source) {
  const auto same = std::find_if(files.templates.begin(), files.templates.end(),
                                 [&](const auto& known) { return known.name == source.name; });
  if (same == files.templates.end()) {
    files.templates.push_back(std::move(source));
  } else {
    *same = std::move(source);
  }
}

void read_jinja_files(const fs::path& folder, ChatTemplateFiles& files) {
  const auto add = [&](std::string name, const fs::path& file) {
    add_template(files, {std::move(name), read_text_file(file, kSmallFileLimit), file.string()});
  };
  const fs::path single = folder / "chat_template.jinja";
  if (is_regular(single)) add("default", single);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "chat_templates", error)) {
    if (entry.path().extension() == ".jinja" && is_regular(entry.path())) {
      add(entry.path().stem().string(), entry.path());
    }
  }
}

void read_config_templates(const Json& config, const std::string& where, ChatTemplateFiles& files) {
  const Json& templates = config.contains("chat_template") ? config["chat_template"] : Json();
  if (templates.is_null()) return;
  if (templates.is_string()) {
    return add_template(files, {"default", templates.get<std::string>(), where});
  }
  const auto text_in = [&](const Json& one, const char* key) {
    if (!one.is_object() || !one.contains(key) || !one[key].is_string()) {
      throw Error(Fault::kData,
                  "{}: chat_template: got an item without the text \"{}\", wanted "
                  "{{\"name\": .., \"template\": ..}}; fix the file",
                  where, key);
    }
    return one[key].get<std::string>();
  };
  if (!templates.is_array()) {
    throw Error(Fault::kData,
                "{}: chat_template: got {}, wanted a text or a list of {{\"name\", \"template\"}}; "
                "fix the file",
                where, templates.type_name());
  }
  for (const Json& one : templates) {
    add_template(files, {text_in(one, "name"), text_in(one, "template"), where});
  }
}

// A token is given as its text or as an object with "content"; null removes it.
void read_special_tokens(const Json& json, Json& tokens) {
  for (const auto& [key, value] : json.items()) {
    if (key == "extra_special_tokens" && value.is_object()) {
      for (const auto& [name, token] : value.items()) {
        if (token.is_string()) tokens[name] = token;
      }
    }
    if (!key.ends_with("_token")) continue;
    if (value.is_null()) tokens.erase(key);
    if (value.is_string()) tokens[key] = value;
    if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[key] = value["content"];
    }
  }
}

std::vector<std::string> names_of(const ChatTemplateFiles& files) {
  std::vector<std::string> names;
  for (const ChatTemplateSource& source : files.templates) names.push_back(source.name);
  return names;
}

}  // namespace

ChatTemplateFiles read_chat_templates(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  ChatTemplateFiles files;
  files.where = folder.string();
  files.special_tokens = Json::object();
  const fs::path config_file = folder / "tokenizer_config.json";
  const Json config = read_object(config_file);
  if (config.is_object()) read_special_tokens(config, files.special_tokens);
  // Newer files say all in tokenizer_config.json.
  if (!config.is_object() || !config.contains("added_tokens_decoder")) {
    const Json map = read_object(folder / "special_tokens_map.json");
    if (map.is_object()) read_special_tokens(map, files.special_tokens);
  }
  read_jinja_files(folder, files);
  if (files.templates.empty() && config.is_object()) {
    read_config_templates(config, config_file.string(), files);
  }
  std::sort(files.templates.begin(), files.templates.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

ModelChatTemplates chat_templates_in(const std::filesystem::path& folder) {
  ModelChatTemplates found;
  found.files.where = folder.string();
  if (folder.empty()) return found;
  try {
    found.files = read_chat_templates(folder);
  } catch (const Error& error) {
    found.fault = error.what();
  }
  return found;
}

Json special_tokens_of(const std::string& tokenizer_config) {
  Json tokens = Json::object();
  const Json config = read_json_or_discarded<Json>(tokenizer_config);
  if (config.is_object()) read_special_tokens(config, tokens);
  return tokens;
}

std::string default_chat_template(const ChatTemplateFiles& files) {
  for (const ChatTemplateSource& one : files.templates) {
    if (one.name == "default") return one.text;
  }
  return "";
}

ChatTemplate choose_chat_template(const ChatTemplateFiles& files, const std::string& name,
                                  bool with_tools) {
  const auto named = [&](const std::string& wanted) {
    return std::find_if(files.templates.begin(), files.templates.end(),
                        [&](const auto& source) { return source.name == wanted; });
  };
  auto found = files.templates.end();
  if (!name.empty()) {
    found = named(name);
  } else {
    if (with_tools) found = named("tool_use");
    if (found == files.templates.end()) found = named("default");
  }
  if (found == files.templates.end()) {
    const std::string wanted = name.empty() ? "a default template" : "\"" + name + "\"";
    if (files.templates.empty()) {
      throw Error(Fault::kData,
                  "{}: no chat template: wanted {}; give a folder with chat_template.jinja, or "
                  "with \"chat_template\" in tokenizer_config.json",
                  files.where, wanted);
    }
    throw Error(Fault::kData, "{}: no such chat template: got {}, wanted one of {}", files.where,
                wanted, listed(names_of(files), 20));
  }
  return ChatTemplate(found->text, files.special_tokens, found->where);
}

}  // namespace piton
