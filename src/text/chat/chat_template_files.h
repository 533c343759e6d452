// The chat templates and special tokens of a model's folder.
//
// Templates by the rules of Transformers 5: chat_template.jinja is "default" and
// chat_templates/NAME.jinja is NAME. If any of them exists, "chat_template" of
// tokenizer_config.json is ignored; else that is one template or a list of {"name", "template"}.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat/chat_template.h"

namespace piton {

struct ChatTemplateSource {
  std::string name;   // "default", "tool_use", ...
  std::string text;   // Jinja
  std::string where;  // the file, for messages
};

struct ChatTemplateFiles {
  std::vector<ChatTemplateSource> templates;  // sorted by name; may be empty
  // Texts of special tokens by the names of variables: bos_token, eos_token, ...
  nlohmann::ordered_json special_tokens;
  std::string where;  // the folder
};

// Reads `folder`, or the folder of a file. A folder without templates is no error. Throws
// Error(kData) if a file is malformed.
ChatTemplateFiles read_chat_templates(const std::filesystem::path& folder);

struct ModelChatTemplates {
  ChatTemplateFiles files;
  std::string fault;  // why they cannot be read; "": they can
};

// The same, of a model that may be used without a template. `folder` "": none.
ModelChatTemplates chat_templates_in(const std::filesystem::path& folder);

// The text of the template that is used without a name ("default"); "": there is none.
std::string default_chat_template(const ChatTemplateFiles& files);

// The texts of special tokens in the contents of a tokenizer_config.json, as an object:
// {"bos_token": "<s>"}. Empty if the contents are no JSON object.
nlohmann::ordered_json special_tokens_of(const std::string& tokenizer_config);

// The template to use: the one named `name`; without a name "tool_use" for conversations with
// tools, if there is one, else "default". Throws Error(kData) with the names that exist.
ChatTemplate choose_chat_template(const ChatTemplateFiles& files, const std::string& name,
                                  bool with_tools);

}  // namespace piton
