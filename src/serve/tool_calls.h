// Calls of tools in what a model writes.
//
// Models write calls in different forms. Found are
//   Hermes, Qwen   <tool_call>{"name": N, "arguments": {...}}</tool_call>, one or more
//   Mistral        [TOOL_CALLS] and a list of such objects
//   Llama 3        nothing but {"name": N, "parameters": {...}}, after <|python_tag|> or
//                  not; several objects are
//                  separated by ";"
// and a list of such objects alone, which is what Mistral's form is without its special token. N
// must be a tool of the request; all else is text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piton {

struct FunctionCall {
  std::string name;
  std::string arguments;  // JSON
  bool operator==(const FunctionCall&) const = default;
};

// An answer that grows part by part.
class ToolCallText {
 public:
  // `tools`: names. Without any, everything is text.
  explicit ToolCallText(std::vector<std::string> tools) : tools_(std::move(tools)) {}

  // The text that is certain after this part. What may be a call is withheld.
  std::string push(std::string_view part);
  // The rest of the text. After it, calls().
  std::string finish();
  const std::vector<FunctionCall>& calls() const { return calls_; }

 private:
  std::vector<std::string> tools_;
  std::string held_;
  bool began_ = false;  // text was returned, so that this is no answer of calls alone
  std::vector<FunctionCall> calls_;
};

}  // namespace piton
