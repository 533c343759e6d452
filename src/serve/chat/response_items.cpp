#include "serve/chat/response_items.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "serve/chat/chat_messages.h"
#include "serve/http/request_error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// Messages of the items so far.
class ItemReader {
 public:
  explicit ItemReader(Json& messages) : messages_(messages) {}

  void read(const Json& item, const std::string& path) {
    RequestFields fields(item, path);
    const std::string type =
        fields.text("type").value_or(fields.value("role") != nullptr ? "message" : "");
    // What the server wrote, and what it would say about calls that its own programs make.
    fields.ignore({"id", "status", "phase", "caller", "namespace"});
    if (type == "message") {
      read_message(fields);
    } else if (type == "function_call") {
      read_call(fields);
    } else if (type == "function_call_output") {
      read_output(fields);
    } else if (type == "reasoning") {
      read_reasoning(fields);
    } else {
      fields.fail("type", "message, function_call, function_call_output or reasoning");
    }
    fields.refuse_others();
  }

 private:
  void read_message(RequestFields& fields) {
    const std::string role = fields.text("role").value_or("");
    const auto content = text_of_parts(fields, "content", {"input_text", "output_text"});
    if (!content) fields.fail("content", "a string, or a list of text parts");
    if (role == "assistant") {
      if (!has_only_reasoning_) add_assistant();
      messages_.back()["content"] = *content;
      has_only_reasoning_ = false;
      answers_ = true;
      return;
    }
    if (role != "user" && role != "system" && role != "developer")
      fields.fail("role", "user, assistant, system or developer");
    end_answer();
    messages_.push_back({{"role", role == "developer" ? "system" : role}, {"content", *content}});
  }

  void read_call(RequestFields& fields) {
    const auto id = fields.text("call_id");
    const auto name = fields.text("name");
    if (!id) fields.fail("call_id", "a string");
    if (!name) fields.fail("name", "a string");
    if (!fields.text("arguments")) fields.fail("arguments", "a string of JSON");
    if (!answers_) add_assistant();
    has_only_reasoning_ = false;
    Json call = {{"id", *id}, {"type", "function"}};
    call["function"] = {{"name", *name},
                        {"arguments", arguments_value(*fields.value("arguments"))}};
    messages_.back()["tool_calls"].push_back(std::move(call));
    calls_.insert(*id);
  }

  void read_output(RequestFields& fields) {
    const auto id = fields.text("call_id");
    if (!id || !calls_.contains(*id))
      fields.fail("call_id", "the call_id of a function_call before it");
    fields.text("name");
    const auto output = text_of_parts(fields, "output", {"input_text"});
    if (!output) fields.fail("output", "a string, or a list of text parts");
    end_answer();
    messages_.push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", *output}});
  }

  void read_reasoning(RequestFields& fields) {
    fields.ignore({"summary", "encrypted_content"});
    const auto text = text_of_parts(fields, "content", {"reasoning_text"});
    if (!text || text->empty()) return;
    end_answer();
    add_assistant();
    messages_.back()["reasoning_content"] = *text;
    has_only_reasoning_ = true;
  }

  void add_assistant() {
    messages_.push_back({{"role", "assistant"}, {"content", ""}});
    answers_ = true;
  }
  void end_answer() {
    answers_ = false;
    has_only_reasoning_ = false;
  }

  Json& messages_;
  bool answers_ = false;             // the last message is the assistant's: calls belong to it
  bool has_only_reasoning_ = false;  // a text belongs to it too
  std::set<std::string> calls_;
};

void read_flat_tools(RequestFields& fields, ChatRequest& request) {
  const Json* tools = fields.value("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) fields.fail("tools", "a list of tools");
  for (std::size_t i = 0; i < tools->size(); ++i) {
    RequestFields tool((*tools)[i], fmt::format("tools[{}]", i));
    if (tool.text("type").value_or("") != "function") tool.fail("type", "\"function\"");
    const auto name = tool.text("name");
    if (!name) tool.fail("name", "a string");
    const Json* parameters = tool.value("parameters");
    Json function = {{"name", *name}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    if (parameters != nullptr) function["parameters"] = *parameters;
    tool.flag("strict");  // calls are held to the schema where tool_choice asks for one
    tool.refuse_others();
    add_tool(request, *name, parameters, {{"type", "function"}, {"function", std::move(function)}});
  }
}

void read_flat_choice(RequestFields& fields, ChatRequest& request) {
  const Json* choice = fields.value("tool_choice");
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") return choose_tools(request, ToolChoice::kNone, "", fields);
  if (*choice == "required") return choose_tools(request, ToolChoice::kRequired, "", fields);
  const bool names = choice->is_object() && choice->value("type", Json()) == "function" &&
                     choice->value("name", Json()).is_string();
  if (!names)
    fields.fail("tool_choice",
                "\"auto\", \"none\", \"required\", or {\"type\": \"function\", \"name\": NAME}");
  choose_tools(request, ToolChoice::kNamed, (*choice)["name"].get<std::string>(), fields);
}

}  // namespace

ChatRequest read_response_input(RequestFields& fields) {
  ChatRequest request;
  Json& messages = request.input.messages = Json::array();
  if (const auto instructions = fields.text("instructions"))
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  const Json* input = fields.value("input");
  if (input != nullptr && input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    if (input == nullptr || !input->is_array() || input->empty())
      fields.fail("input", "a string, or a list of at least one item");
    ItemReader reader(messages);
    for (std::size_t i = 0; i < input->size(); ++i)
      reader.read((*input)[i], fmt::format("input[{}]", i));
  }
  read_flat_tools(fields, request);
  read_flat_choice(fields, request);
  request.input.variables = read_template_variables(fields);
  if (const Json* reasoning = fields.value("reasoning")) {
    RequestFields inner(*reasoning, "reasoning");
    if (const auto effort = inner.text("effort"))
      request.input.variables["reasoning_effort"] = *effort;
    request.effort_field = "reasoning.effort";
    inner.ignore({"summary", "generate_summary"});  // the whole reasoning is in the answer
    inner.refuse_others();
  }
  return request;
}

}  // namespace piton
