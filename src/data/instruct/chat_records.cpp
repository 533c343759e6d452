#include "data/instruct/chat_records.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/chat/conversations.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// Adds the pairs of `history`.
void add_history(const Json& record, const std::string& key, Conversation& conversation) {
  // A column of a table that is empty holds no history.
  if (!holds(record, key) || record.at(key) == "") return;
  for (const Json& pair : list_at(record, key)) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string()) {
      throw Error(Fault::kData, "\"{}\" holds {}, wanted pairs of texts", key,
                  pair.is_array() ? fmt::format("a list of {}", pair.size())
                                  : std::string(pair.type_name()));
    }
    conversation.messages.push_back({MessageRole::kUser, pair[0].get<std::string>()});
    conversation.messages.push_back({MessageRole::kAssistant, pair[1].get<std::string>()});
  }
}

// The text of a response, which may be a list of one.
std::string answer_at(const Json& record, const std::string& key) {
  const auto at = record.find(key);
  if (at == record.end() || !at->is_array()) return text_at(record, key);
  if (at->size() == 1 && at->front().is_string()) return at->front().get<std::string>();
  throw Error(Fault::kData, "key \"{}\" holds a list of {}, wanted one text", key, at->size());
}

// A judgment: true, 1 or their texts, or the opposite.
bool judgment_at(const Json& record, const std::string& key) {
  const auto at = record.find(key);
  const std::string text = at == record.end() ? ""
                           : at->is_string()  ? at->get<std::string>()
                                              : at->dump();
  if (text == "true" || text == "True" || text == "1") return true;
  if (text == "false" || text == "False" || text == "0") return false;
  if (at == record.end()) text_at(record, key);  // throws
  throw Error(Fault::kData, "key \"{}\" is {}, wanted true or false", key, text);
}

// The role of a word of sharegpt; nothing for a word that is none.
std::optional<MessageRole> role_of_tag(const RecordFields& fields, const std::string& word) {
  struct Tag {
    std::string_view meaning;
    MessageRole role;
    std::string_view other;  // as many files of this format have it
  };
  static constexpr Tag kTags[] = {{"user_tag", MessageRole::kUser, "user"},
                                  {"assistant_tag", MessageRole::kAssistant, "assistant"},
                                  {"function_tag", MessageRole::kFunction, "function"},
                                  {"observation_tag", MessageRole::kObservation, "tool"}};
  for (const Tag& tag : kTags) {
    if (word == fields.tag(tag.meaning)) return tag.role;
  }
  for (const Tag& tag : kTags) {
    if (word == tag.other && !fields.is_given(tag.meaning)) return tag.role;
  }
  return {};
}

const Json& object_of(const Json& message, const std::string& key, std::size_t index) {
  if (message.is_object()) return message;
  throw Error(Fault::kData, "message {} of \"{}\" is {}, wanted an object", index + 1, key,
              message.type_name());
}

// Weights of questions have no meaning: they are not learned anyway.
bool taught_by(MessageRole role, const Json& message) {
  const bool answers = role == MessageRole::kAssistant || role == MessageRole::kFunction;
  return !answers || is_taught(message);
}

Message share_gpt_message(const RecordFields& fields, const Json& message) {
  const std::string word = text_at(message, fields.tag("role_tag"));
  const auto role = role_of_tag(fields, word);
  if (!role) {
    throw Error(Fault::kData,
                "a message is from \"{}\", wanted {}, {}, {} or {}; --map-keys names other tags",
                word, fields.tag("user_tag"), fields.tag("assistant_tag"),
                fields.tag("observation_tag"), fields.tag("function_tag"));
  }
  return {*role, text_at(message, fields.tag("content_tag")), taught_by(*role, message)};
}

// The text of a content, which may be absent, a text, or a list of parts.
std::string content_of(const Json& message) {
  const auto at = message.find("content");
  if (at == message.end() || at->is_null()) return "";
  if (!at->is_array()) return text_at(message, "content");
  std::string text;
  for (const Json& part : *at) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || (type != part.end() && *type != "text")) {
      throw Error(Fault::kData, "a content has a part that is not text");
    }
    text += text_at(part, "text");
  }
  return text;
}

// [{"name": .., "arguments": ..}, ..] of a message's tool_calls.
std::string calls_of(const Json& list) {
  Json calls = Json::array();
  for (const Json& call : list) {
    const auto inner = call.is_object() ? call.find("function") : call.end();
    const Json& function = call.is_object() && inner != call.end() ? *inner : call;
    if (!function.is_object() || !function.contains("name")) {
      throw Error(Fault::kData, "a tool call has no name");
    }
    calls.push_back(
        {{"name", function["name"]}, {"arguments", function.value("arguments", Json::object())}});
  }
  return calls.dump();
}

// The calls of an answer: "tool_calls", or the older "function_call"; empty if there are none.
Json called_by(const Json& message) {
  for (const char* key : {"tool_calls", "function_call"}) {
    const auto calls = message.find(key);
    if (calls == message.end() || calls->is_null() || calls->empty()) continue;
    if (calls->is_array()) return *calls;
    if (calls->is_object()) return Json::array({*calls});
    throw Error(Fault::kData, "\"{}\" is a {}, wanted calls of tools", key, calls->type_name());
  }
  return Json::array();
}

// A message as the model's own template reads it: all fields, but a content of parts as one text
// and calls in their usual form. `calls`: those of called_by().
Json given_message(Json message, const std::string& role, const Json& calls) {
  message["role"] = role;
  const auto content = message.find("content");
  if (content != message.end() && content->is_array()) *content = content_of(message);
  if (calls.empty()) return message;
  message.erase("function_call");
  Json list = Json::array();
  for (const Json& call : calls) {
    Json wrapped = call;
    if (!call.contains("function")) {
      wrapped = {{"function", call}};
      if (call.contains("id")) wrapped["id"] = call["id"];
      wrapped["function"].erase("id");
    }
    if (!wrapped.contains("type")) wrapped["type"] = "function";
    list.push_back(std::move(wrapped));
  }
  message["tool_calls"] = std::move(list);
  return message;
}

// Adds one message of OpenAI's form.
void add_message(const Json& message, Conversation& conversation) {
  const std::string role = text_at(message, "role");
  std::vector<Message>& messages = conversation.messages;
  if (role == "user") {
    messages.push_back({MessageRole::kUser, content_of(message)});
    messages.back().given = Json::array({given_message(message, role, {})});
  } else if (role == "assistant") {
    std::string thought = optional_text_at(message, "reasoning_content");
    if (!thought.empty()) thought = "<think>\n" + thought + "\n</think>\n\n";
    const Json calls = called_by(message);
    if (calls.empty()) {
      messages.push_back(
          {MessageRole::kAssistant, thought + content_of(message), is_taught(message)});
    } else {
      messages.push_back({MessageRole::kFunction, thought + calls_of(calls), is_taught(message),
                          content_of(message)});
    }
    messages.back().given = Json::array({given_message(message, role, calls)});
  } else if (role == "tool" || role == "function") {
    if (!messages.empty() && messages.back().role == MessageRole::kObservation) {
      messages.back().content += "\n</tool_response>\n<tool_response>\n" + content_of(message);
    } else {
      messages.push_back({MessageRole::kObservation, content_of(message)});
      messages.back().given = Json::array();
    }
    messages.back().given.push_back(given_message(message, "tool", {}));
  } else {
    throw Error(Fault::kData, "a message has the role \"{}\", wanted user, assistant or tool",
                role);
  }
}

// Adds the messages of a list under `key`; a first one of the system sets that.
void add_messages(const Json& list, const std::string& key, Conversation& conversation) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& message = object_of(list[i], key, i);
    // OpenAI's later models have a developer in place of the system.
    const std::string role = text_at(message, "role");
    if (i == 0 && (role == "system" || role == "developer")) {
      conversation.system = content_of(message);
      conversation.has_system = true;
      continue;
    }
    add_message(message, conversation);
  }
}

// Adds an answer: a text, or messages after the prompt or in place of it.
void add_answer(const Json& record, const std::string& key, Conversation& conversation) {
  const auto at = record.find(key);
  if (at == record.end() || !at->is_array()) {
    conversation.messages.push_back({MessageRole::kAssistant, text_at(record, key)});
    return;
  }
  if (at->empty()) throw Error(Fault::kData, "key \"{}\" holds no message", key);
  const std::string first = text_at(object_of(at->front(), key, 0), "role");
  if (first == "user" || first == "system" || first == "developer") conversation.messages.clear();
  add_messages(*at, key, conversation);
}

}  // namespace

Conversation read_alpaca(const RecordFields& fields, const Json& record) {
  Conversation conversation;
  conversation.system = optional_text_at(record, fields.key("system"));
  conversation.tools = json_text_at(record, fields.key("tools"));
  add_history(record, fields.key("history"), conversation);
  std::string user = text_at(record, fields.key("prompt"));
  const std::string query = optional_text_at(record, fields.key("query"));
  if (!user.empty() && !query.empty()) user += "\n";
  conversation.messages.push_back({MessageRole::kUser, user + query});
  const bool pair = fields.has("chosen");
  conversation.messages.push_back(
      {MessageRole::kAssistant, answer_at(record, fields.key(pair ? "chosen" : "response"))});
  if (pair) {
    conversation.rejected =
        Message{MessageRole::kAssistant, answer_at(record, fields.key("rejected"))};
  }
  if (fields.has("label")) conversation.desirable = judgment_at(record, fields.key("label"));
  return conversation;
}

Conversation read_share_gpt(const RecordFields& fields, const Json& record) {
  Conversation conversation;
  conversation.system = optional_text_at(record, fields.key("system"));
  conversation.tools = json_text_at(record, fields.key("tools"));
  const std::string& key = fields.key("messages");
  const Json list = list_at(record, key);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& message = object_of(list[i], key, i);
    if (i == 0 && text_at(message, fields.tag("role_tag")) == fields.tag("system_tag")) {
      conversation.system = text_at(message, fields.tag("content_tag"));
      conversation.has_system = true;
      continue;
    }
    conversation.messages.push_back(share_gpt_message(fields, message));
  }
  if (fields.has("label")) conversation.desirable = judgment_at(record, fields.key("label"));
  if (!fields.has("chosen")) return conversation;
  const auto answer = [&](std::string_view meaning) -> Message {
    const auto at = record.find(fields.key(meaning));
    if (at != record.end() && at->is_object()) return share_gpt_message(fields, *at);
    return {MessageRole::kAssistant, text_at(record, fields.key(meaning))};
  };
  conversation.messages.push_back(answer("chosen"));
  conversation.rejected = answer("rejected");
  return conversation;
}

Conversation read_messages(const RecordFields& fields, const Json& record) {
  Conversation conversation;
  conversation.system = optional_text_at(record, fields.key("system"));
  conversation.tools = json_text_at(record, fields.key("tools"));
  const std::string& key = fields.key("messages");
  add_messages(list_at(record, key), key, conversation);
  return conversation;
}

Conversation read_prompt(const RecordFields& fields, const Json& record) {
  Conversation conversation;
  conversation.system = optional_text_at(record, fields.key("system"));
  conversation.tools = json_text_at(record, fields.key("tools"));
  const std::string& prompt = fields.key("prompt");
  if (holds(record, prompt) && record.at(prompt).is_array()) {
    add_messages(record.at(prompt), prompt, conversation);
  } else if (const std::string text = optional_text_at(record, prompt); !text.empty()) {
    conversation.messages.push_back({MessageRole::kUser, text});
  }
  if (!fields.has("chosen")) {
    add_answer(record, fields.key("completion"), conversation);
    if (fields.has("label")) conversation.desirable = judgment_at(record, fields.key("label"));
    return conversation;
  }
  Conversation worse = conversation;
  add_answer(record, fields.key("chosen"), conversation);
  add_answer(record, fields.key("rejected"), worse);
  const Message rejected = worse.messages.back();
  worse.messages.back() = conversation.messages.back();
  if (worse.messages != conversation.messages || worse.system != conversation.system) {
    throw Error(Fault::kData, "\"{}\" and \"{}\" differ before their last message",
                fields.key("chosen"), fields.key("rejected"));
  }
  conversation.rejected = rejected;
  return conversation;
}

}  // namespace piton
