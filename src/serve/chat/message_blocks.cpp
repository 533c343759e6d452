#include "serve/chat/message_blocks.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "serve/chat/chat_messages.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// Messages of the blocks so far.
class ContentReader {
 public:
  explicit ContentReader(Json& messages) : messages_(messages) {}

  void read(const Json& message, const std::string& path) {
    RequestFields fields(message, path);
    const std::string role = fields.text("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system")
      fields.fail("role", "user, assistant or system");
    const Json* content = fields.value("content");
    fields.refuse_others();
    const bool is_text = content != nullptr && content->is_string();
    if (!is_text && (content == nullptr || !content->is_array()))
      fields.fail("content", "a string, or a list of blocks");
    is_open_ = false;
    role_ = role;
    if (is_text) {
      open()["content"] = *content;
      return;
    }
    const std::size_t before = messages_.size();
    for (std::size_t i = 0; i < content->size(); ++i)
      read_block((*content)[i], fmt::format("{}.content[{}]", path, i));
    if (messages_.size() == before) open();
  }

 private:
  void read_block(const Json& block, const std::string& path) {
    RequestFields fields(block, path);
    const std::string type = fields.text("type").value_or("");
    fields.ignore({"cache_control"});
    if (type == "text") {
      const auto text = fields.text("text");
      if (!text) fields.fail("text", "a string");
      fields.ignore({"citations"});
      std::string& content = open()["content"].get_ref<std::string&>();
      content += *text;
    } else if (type == "thinking" && role_ == "assistant") {
      const auto text = fields.text("thinking");
      if (!text) fields.fail("thinking", "a string");
      fields.ignore({"signature"});
      if (!text->empty()) open()["reasoning_content"] = *text;
    } else if (type == "redacted_thinking" && role_ == "assistant") {
      fields.ignore({"data"});  // nothing that a model could read
    } else if (type == "tool_use" && role_ == "assistant") {
      read_call(fields);
    } else if (type == "tool_result" && role_ == "user") {
      read_result(fields);
    } else {
      fields.fail("type", role_ == "assistant" ? "text, thinking or tool_use (the model reads text)"
                          : role_ == "user"    ? "text or tool_result (the model reads text)"
                                               : "text");
    }
    fields.refuse_others();
  }

  void read_call(RequestFields& fields) {
    const auto id = fields.text("id");
    const auto name = fields.text("name");
    const Json* input = fields.value("input");
    if (!id) fields.fail("id", "a string");
    if (!name) fields.fail("name", "a string");
    if (input == nullptr || !input->is_object()) fields.fail("input", "an object");
    fields.ignore({"caller"});
    Json call = {{"id", *id}, {"type", "function"}};
    call["function"] = {{"name", *name}, {"arguments", *input}};
    open()["tool_calls"].push_back(std::move(call));
    calls_.insert(*id);
  }

  void read_result(RequestFields& fields) {
    const auto id = fields.text("tool_use_id");
    if (!id || !calls_.contains(*id)) fields.fail("tool_use_id", "the id of a tool_use before it");
    fields.flag("is_error");  // what went wrong is in the content
    const auto content = text_of_parts(fields, "content", {"text"});
    messages_.push_back(
        {{"role", "tool"}, {"tool_call_id", *id}, {"content", content.value_or("")}});
    is_open_ = false;
  }

  // The message that the next text belongs to.
  Json& open() {
    if (!is_open_) messages_.push_back({{"role", role_}, {"content", ""}});
    is_open_ = true;
    return messages_.back();
  }

  Json& messages_;
  std::string role_;
  bool is_open_ = false;
  std::set<std::string> calls_;
};

void read_described_tools(RequestFields& fields, ChatRequest& request) {
  const Json* tools = fields.value("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) fields.fail("tools", "a list of tools");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    RequestFields tool((*tools)[i], fmt::format("tools[{}]", i));
    if (tool.text("type").value_or("custom") != "custom")
      tool.fail("type", "\"custom\" (the server has none that it runs itself)");
    const auto name = tool.text("name");
    const Json* schema = tool.value("input_schema");
    if (!name) tool.fail("name", "a string");
    if (schema == nullptr || !schema->is_object())
      tool.fail("input_schema", "the JSON schema of an object");
    Json function = {{"name", *name}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    function["parameters"] = *schema;
    tool.flag("strict");  // calls are held to the schema where tool_choice asks for one
    tool.ignore({"cache_control", "eager_input_streaming"});
    tool.refuse_others();
    add_tool(request, *name, schema, {{"type", "function"}, {"function", std::move(function)}});
  }
}

void read_typed_choice(RequestFields& fields, ChatRequest& request) {
  const Json* choice = fields.value("tool_choice");
  if (choice == nullptr) return;
  RequestFields inner(*choice, "tool_choice");
  const std::string type = inner.text("type").value_or("");
  const auto name = inner.text("name");
  inner.flag("disable_parallel_tool_use");
  inner.refuse_others();
  if (type == "none") {
    choose_tools(request, ToolChoice::kNone, "", fields);
  } else if (type == "any") {
    choose_tools(request, ToolChoice::kRequired, "", fields);
  } else if (type == "tool") {
    if (!name) inner.fail("name", "the name of a tool");
    choose_tools(request, ToolChoice::kNamed, *name, fields);
  } else if (type != "auto") {
    inner.fail("type", "auto, any, tool or none");
  }
}

void read_thinking(RequestFields& fields, ChatRequest& request) {
  const Json* thinking = fields.value("thinking");
  if (thinking == nullptr) return;
  RequestFields inner(*thinking, "thinking");
  const std::string type = inner.text("type").value_or("");
  if (type != "enabled" && type != "adaptive" && type != "disabled")
    inner.fail("type", "enabled, adaptive or disabled");
  request.reasons = type != "disabled";
  inner.ignore({"budget_tokens", "display"});
  inner.refuse_others();
}

}  // namespace

bool only_one_call(RequestFields& fields) {
  const Json* choice = fields.value("tool_choice");
  return choice != nullptr && choice->is_object() &&
         choice->value("disable_parallel_tool_use", Json()) == true;
}

ChatRequest read_message_blocks(RequestFields& fields) {
  ChatRequest request;
  Json& messages = request.input.messages = Json::array();
  const Json* given = fields.value("messages");
  if (given == nullptr || !given->is_array() || given->empty())
    fields.fail("messages", "a list of at least one message");
  if (const auto system = text_of_parts(fields, "system", {"text"}))
    messages.push_back({{"role", "system"}, {"content", *system}});
  ContentReader reader(messages);
  for (std::size_t i = 0; i < given->size(); ++i)
    reader.read((*given)[i], fmt::format("messages[{}]", i));
  if (messages.back()["role"] == "assistant") {
    if (messages.back().contains("tool_calls"))
      fields.fail("messages", "a tool_result after the last tool_use");
    request.continues = true;
  }
  read_described_tools(fields, request);
  read_typed_choice(fields, request);
  read_thinking(fields, request);
  request.input.variables = read_template_variables(fields);
  return request;
}

}  // namespace piton
