// Calls of tools in what a model writes.
//
// Models write calls in different forms. Found are
//   Hermes, Qwen   <tool_call>{"name": N, "arguments": {...}}</tool_call>, one or more
//   GLM-4.5        <tool_call>N <arg_key>A</arg_key><arg_value>V</arg_value> ... </tool_call>
//   Qwen3-Coder    <tool_call><function=N><parameter=A>V</parameter> ... </function></tool_call>
//   DeepSeek-V3    a list between special words of calls, each with a name and JSON (tool_forms.h)
//   Mistral        [TOOL_CALLS] and a list of objects with "name" and "arguments"
//   Llama 3        nothing but {"name": N, "parameters": {...}}, after <|python_tag|> or
//                  not; several objects are
//                  separated by ";"
// and a list of such objects alone, which is what Mistral's form is without its special token. N
// must be a tool of the request; all else is text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/chat/tool_forms.h"

namespace piton {

// An answer that grows part by part.
class ToolCallText {
 public:
  // Without any tools everything is text.
  explicit ToolCallText(std::vector<CallableTool> tools) : tools_(std::move(tools)) {}

  // The text that is certain after this part. What may be a call is withheld.
  std::string push(std::string_view part);
  // The rest of the text. After it, calls().
  std::string finish();
  const std::vector<FunctionCall>& calls() const { return calls_; }

 private:
  std::vector<CallableTool> tools_;
  std::string held_;
  bool began_ = false;  // text was returned, so that this is no answer of calls alone
  std::vector<FunctionCall> calls_;
};

}  // namespace piton
