#include "data/instruct/prompt_template.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/listed.h"
#include "base/nesting.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostBytes = 16 << 20;

// One template of a file.
class FileTemplate {
 public:
  FileTemplate(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  PromptTemplate read() const {
    static const std::vector<std::string> kKeys = {"name",
                                                   "format_user",
                                                   "format_assistant",
                                                   "format_system",
                                                   "format_function",
                                                   "format_tools",
                                                   "format_observation",
                                                   "format_separator",
                                                   "format_prefix",
                                                   "default_system",
                                                   "stop_words",
                                                   "efficient_eos",
                                                   "replace_eos",
                                                   "force_system",
                                                   "template_class"};
    for (const auto& [key, value] : json_.items()) {
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        refuse(key, "is not a key of templates; there are " + listed(kKeys, kKeys.size()));
      }
    }
    PromptTemplate prompt;
    prompt.name = json_.at("name").get<std::string>();
    prompt.user = slots("format_user", true);
    prompt.assistant = slots("format_assistant", true);
    prompt.system = slots("format_system", true);
    prompt.function = slots("format_function", false);
    prompt.observation = slots("format_observation", true);
    prompt.separator = slots("format_separator", false);
    prompt.prefix = slots("format_prefix", false);
    prompt.default_system = default_system();
    prompt.stop_words = texts("stop_words");
    prompt.efficient_eos = flag("efficient_eos");
    prompt.replace_eos = flag("replace_eos");
    flag("force_system");  // decides nothing in training
    prompt.tools = tool_format(prompt.name);
    const auto at = json_.find("template_class");
    const std::string style = at == json_.end() || at->is_null() ? ""
                              : at->is_string()                  ? at->get<std::string>()
                                                                 : at->dump();
    if (style == "Llama2Template") {
      prompt.style = PromptTemplate::Style::kLlama2;
    } else if (style == "ReasoningTemplate") {
      prompt.style = PromptTemplate::Style::kReasoning;
    } else if (!style.empty() && style != "Template") {
      refuse("template_class", "is \"" + style + "\", wanted Llama2Template or ReasoningTemplate");
    }
    complete(prompt);
    return prompt;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw Error(Fault::kData, "{}: \"{}\" {}", where_, key, what);
  }

  // `content`: whether {{content}} must be in one of them.
  Slots slots(const char* key, bool content) const {
    Slots slots;
    const auto at = json_.find(key);
    if (at == json_.end() || at->is_null()) return slots;
    if (!at->is_object() || !at->contains("slots") || !at->at("slots").is_array()) {
      refuse(key, "has no list \"slots\"");
    }
    bool found = false;
    for (const Json& slot : at->at("slots")) {
      if (slot.is_string()) {
        slots.push_back({Slot::Kind::kText, slot.get<std::string>()});
        found = found || slots.back().text.find("{{content}}") != std::string::npos;
      } else if (slot.is_object() && slot.contains("token") && slot["token"].is_string()) {
        slots.push_back({Slot::Kind::kToken, slot["token"].get<std::string>()});
      } else if (slot == Json::array({"bos_token"})) {
        slots.push_back({Slot::Kind::kBos, ""});
      } else if (slot == Json::array({"eos_token"})) {
        slots.push_back({Slot::Kind::kEos, ""});
      } else {
        refuse(key, "has the slot " + slot.dump() +
                        ", wanted a text, {\"token\": ...}, [\"bos_token\"] or [\"eos_token\"]");
      }
    }
    if (content && !found) refuse(key, "has no {{content}}");
    return slots;
  }

  std::string default_system() const {
    const auto at = json_.find("default_system");
    if (at == json_.end() || at->is_null()) return "";
    if (at->is_string()) return at->get<std::string>();
    std::string text;
    for (const std::string& part : texts("default_system")) text += part;
    return text;
  }

  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> list;
    const auto at = json_.find(key);
    if (at == json_.end() || at->is_null()) return list;
    if (!at->is_array()) refuse(key, "is not a list of texts");
    for (const Json& text : *at) {
      if (!text.is_string()) refuse(key, "is not a list of texts");
      list.push_back(text.get<std::string>());
    }
    return list;
  }

  bool flag(const char* key) const {
    const auto at = json_.find(key);
    if (at == json_.end() || at->is_null()) return false;
    if (!at->is_boolean()) refuse(key, "is neither true nor false");
    return at->get<bool>();
  }

  // MindSpeed-LLM's forms of tools: of qwen3 Qwen's, else as format_tools names it.
  ToolFormat tool_format(const std::string& name) const {
    for (const char* key : {"format_tools", "format_function"}) {
      const auto at = json_.find(key);
      if (at == json_.end() || !at->is_object() || !at->contains("tool_format")) continue;
      const Json& format = at->at("tool_format");
      if (format == "qwen") return ToolFormat::kQwen;
      if (format == "glm4") return ToolFormat::kGlm4;
      if (format != "default") refuse(key, "has the tool_format " + format.dump());
    }
    return name == "qwen3" ? ToolFormat::kQwen : ToolFormat::kDefault;
  }

  const Json& json_;
  std::string where_;
};

std::vector<PromptTemplate> read_templates(const std::string& file, const std::string& name) {
  const std::string text = read_text_file(file, kMostBytes);
  check_json_depth(text, file);
  const auto json = read_json_or_discarded<Json>(text);
  std::vector<PromptTemplate> templates;
  if (!json.is_array()) {
    throw Error(Fault::kData, "{}: not a list of templates in JSON; see docs/instruction_data.md",
                file);
  }
  for (const Json& one : json) {
    const auto at = one.is_object() ? one.find("name") : one.end();
    if (!one.is_object() || at == one.end() || !at->is_string()) {
      throw Error(Fault::kData, "{}: a template is no object with a name", file);
    }
    PromptTemplate prompt;
    prompt.name = at->get<std::string>();
    // Others may need what is not known here.
    if (prompt.name == name) prompt = FileTemplate(one, file + ": " + name).read();
    templates.push_back(std::move(prompt));
  }
  return templates;
}

void set_if_empty(Slots& slots, const char* text) {
  if (slots.empty()) slots = parse_slots(text);
}

}  // namespace

Slots parse_slots(std::string_view text) {
  struct Mark {
    std::string_view text;
    Slot::Kind kind;
  };
  constexpr Mark kMarks[] = {{"{{bos_token}}", Slot::Kind::kBos},
                             {"{{eos_token}}", Slot::Kind::kEos},
                             {"{{token ", Slot::Kind::kToken},
                             {"{{next}}", Slot::Kind::kText}};
  Slots slots;
  std::string open;
  const auto close = [&] {
    if (!open.empty()) slots.push_back({Slot::Kind::kText, std::exchange(open, "")});
  };
  while (!text.empty()) {
    const auto mark = std::find_if(std::begin(kMarks), std::end(kMarks),
                                   [&](const Mark& one) { return text.starts_with(one.text); });
    if (mark == std::end(kMarks)) {
      open += text.front();
      text.remove_prefix(1);
      continue;
    }
    close();
    text.remove_prefix(mark->text.size());
    if (mark->kind == Slot::Kind::kText) continue;
    Slot slot{mark->kind, ""};
    if (mark->kind == Slot::Kind::kToken) {
      const std::size_t end = text.find("}}");
      PITON_ASSERT(end != text.npos, "a token without an end");
      slot.text = text.substr(0, end);
      text.remove_prefix(end + 2);
    }
    slots.push_back(std::move(slot));
  }
  close();
  return slots;
}

void complete(PromptTemplate& prompt) {
  const bool eos = !prompt.efficient_eos;
  set_if_empty(prompt.user, "{{content}}");
  set_if_empty(prompt.system, "{{content}}");
  set_if_empty(prompt.assistant, eos ? "{{content}}{{eos_token}}" : "{{content}}");
  if (prompt.observation.empty()) prompt.observation = prompt.user;
  set_if_empty(prompt.function, prompt.tools == ToolFormat::kQwen
                                    ? eos ? "{{content}}{{eos_token}}" : "{{content}}"
                                : eos ? "Action: {{name}}\nAction Input: {{arguments}}{{eos_token}}"
                                      : "Action: {{name}}\nAction Input: {{arguments}}");
}

PromptTemplate prompt_template(const std::string& name, const std::string& file) {
  const std::vector<PromptTemplate> templates =
      file.empty() ? built_in_templates() : read_templates(file, name);
  std::vector<std::string> names;
  for (const PromptTemplate& prompt : templates) {
    if (prompt.name == name) return prompt;
    names.push_back(prompt.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw Error(Fault::kUsage, "--prompt-type: got \"{}\"{}, wanted one of {}{}", name,
              nearest.empty() ? "" : fmt::format(" (did you mean {}?)", nearest),
              file.empty() ? "" : file + "'s ", listed(names, names.size()));
}

}  // namespace piton
