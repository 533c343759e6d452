#include "text/chat/conversations.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "base/nesting.h"
#include "base/trimmed.h"
#include "text/chat/json_in_text.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kRoles = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"chatgpt", "assistant"},
    {"assistant", "assistant"},
    {"function_call", "assistant"},
    {"observation", "tool"},
    {"tool", "tool"},
    {"system", "system"},
});

std::string role_of(const std::string& from, const std::string& where) {
  for (const auto& [name, role] : kRoles) {
    if (name == from) return std::string(role);
  }
  throw Error(Fault::kData,
              "{}: \"from\": got \"{}\", wanted human, gpt, system, function_call, observation or "
              "tool",
              where, from);
}

std::string text_of(const Json& message, const char* key, const std::string& where) {
  if (!message.is_object() || !message.contains(key) || !message[key].is_string()) {
    throw Error(Fault::kData, "{}: wanted messages with the text \"{}\"", where, key);
  }
  return message[key].get<std::string>();
}

// The calls of tools that a message from function_call is: an object with name and arguments, or a
// list of them. Null if it is none, and stays a text.
Json calls_in(const std::string& text) {
  Json list = json_in_text(trimmed(text));
  if (list.is_object()) list = Json::array({list});
  if (!list.is_array() || list.empty()) return nullptr;
  Json calls = Json::array();
  for (const Json& one : list) {
    if (!one.is_object() || !one.contains("name") || !one.contains("arguments")) return nullptr;
    Json arguments = one["arguments"];
    if (arguments.is_string()) arguments = json_in_text(trimmed(arguments.get<std::string>()));
    if (!one["name"].is_string() || !arguments.is_object()) return nullptr;
    calls.push_back({{"type", "function"},
                     {"function", {{"name", one["name"]}, {"arguments", std::move(arguments)}}}});
  }
  return calls;
}

Json messages_of_sharegpt(const Json& list, const std::string& where) {
  if (!list.is_array()) {
    throw Error(Fault::kData, "{}: \"conversations\": got {}, wanted a list", where,
                list.type_name());
  }
  Json messages = Json::array();
  for (const Json& message : list) {
    const std::string from = text_of(message, "from", where);
    const std::string value = text_of(message, "value", where);
    const Json calls = from == "function_call" ? calls_in(value) : Json();
    messages.push_back({{"role", role_of(from, where)}, {"content", calls.is_null() ? value : ""}});
    if (!calls.is_null()) messages.back()["tool_calls"] = calls;
    if (message.contains("weight")) messages.back()["weight"] = message["weight"];
  }
  return messages;
}

// Tools of ShareGPT as templates expect them.
Json typed_tools(Json tools) {
  if (!tools.is_array()) return tools;
  for (Json& tool : tools) {
    if (tool.is_object() && !tool.contains("function"))
      tool = Json{{"type", "function"}, {"function", tool}};
  }
  return tools;
}

// Tools are a list, or a text that contains one.
Json tools_of(const Json& tools, const std::string& where) {
  if (!tools.is_string()) return tools;
  const std::string text = tools.get<std::string>();
  if (trimmed(text).empty()) return nullptr;
  check_json_depth(text, where + ": tools");
  Json list = read_json_or_discarded<Json>(text);
  if (!list.is_array()) {
    throw Error(Fault::kData, "{}: \"tools\": got a text that is no JSON list", where);
  }
  return list;
}

void read_weights(ChatInput& input, const std::string& where) {
  if (!input.messages.is_array()) return;  // as the template reports
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    const Json& message = input.messages[i];
    const bool answers = message.is_object() && message.contains("role") &&
                         message["role"].is_string() && message["role"] == "assistant";
    if (!answers) continue;
    try {
      if (!is_taught(message)) input.untaught.insert(i);
    } catch (const Error& error) {
      throw Error(error.fault(), "{}: {}", where, error.what());
    }
  }
}

ChatInput conversation_of(const Json& json, const std::string& where) {
  ChatInput input;
  if (json.is_array()) {
    input.messages = json;
    return input;
  }
  if (!json.is_object() || !(json.contains("messages") || json.contains("conversations"))) {
    throw Error(Fault::kData,
                "{}: got {}, wanted a list of messages, or an object with \"messages\" or "
                "\"conversations\"",
                where, json.is_object() ? "an object without messages" : json.type_name());
  }
  const bool sharegpt = !json.contains("messages");
  input.variables = Json::object();
  for (const auto& [key, value] : json.items()) {
    if (key == "tools") {
      input.tools = tools_of(value, where);
      if (sharegpt) input.tools = typed_tools(std::move(input.tools));
    } else if (key == "documents") {
      input.documents = value;
    } else if (key == "messages") {
      input.messages = value;
    } else if (sharegpt && key == "conversations") {
      input.messages = messages_of_sharegpt(value, where);
    } else if (!(sharegpt && key == "system")) {
      input.variables[key] = value;
    }
  }
  if (sharegpt && json.contains("system") && json["system"].is_string() &&
      !json["system"].get_ref<const std::string&>().empty()) {
    const Json system = {{"role", "system"}, {"content", json["system"]}};
    input.messages.insert(input.messages.begin(), system);
  }
  return input;
}

// One JSON value is a conversation, or a list of conversations.
bool is_list_of_conversations(const Json& json) {
  if (!json.is_array() || json.empty()) return false;
  const Json& first = json[0];
  return first.is_array() ||
         (first.is_object() && (first.contains("messages") || first.contains("conversations")));
}

}  // namespace

bool is_taught(const Json& message) {
  const auto weight = message.find("weight");
  if (weight == message.end() || weight->is_null()) return true;
  if (weight->is_boolean()) return weight->get<bool>();
  const double value = weight->is_number() ? weight->get<double>() : -1;
  if (value == 0 || value == 1) return value == 1;
  throw Error(Fault::kData,
              "a message of the assistant has the \"weight\" {}, wanted 1, or 0 for what is not "
              "learned",
              weight->dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::vector<ChatInput> read_conversations(std::string_view text, const std::string& where) {
  std::vector<ChatInput> inputs;
  const auto add = [&](const Json& json) {
    const std::string place = fmt::format("{}: conversation {}", where, inputs.size() + 1);
    inputs.push_back(conversation_of(json, place));
    read_weights(inputs.back(), place);
  };
  check_json_depth(text, where);
  const Json whole = read_json_or_discarded<Json>(text);
  if (!whole.is_discarded()) {
    if (!is_list_of_conversations(whole)) {
      add(whole);
    } else {
      for (const Json& json : whole) add(json);
    }
    return inputs;
  }
  std::int64_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    ++number;
    if (line.empty()) continue;
    const Json json = read_json_or_discarded<Json>(line);
    if (json.is_discarded()) {
      throw Error(Fault::kData, "{}: line {}: got no JSON, wanted one JSON value, or one per line",
                  where, number);
    }
    add(json);
  }
  if (inputs.empty()) {
    throw Error(Fault::kData, "{}: got no conversations, wanted JSON or JSONL", where);
  }
  return inputs;
}

}  // namespace piton
