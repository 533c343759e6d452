// Descriptions and calls of tools as texts, in the two forms that named templates have.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace piton {

enum class ToolFormat : std::uint8_t {
  kDefault,  // "Action: NAME", "Action Input: ARGUMENTS"
  kQwen,     // <tools>, <tool_call>
  kGlm4,     // calls only; there is no form of descriptions
};

// What the system message says about tools. `tools`: JSON, a list of {name, description,
// parameters} or of {"type": "function", "function": ..}; "" for an empty list. Throws Error(kData)
// where it is something else, and for kGlm4.
std::string tool_descriptions(ToolFormat format, const std::string& tools);

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON as Python writes it
};
struct ToolCalls {
  std::string thought;  // <think>..</think> before the calls, or ""
  std::vector<ToolCall> calls;
};
// The calls in a function message: JSON, one {"name", "arguments"} or a list. Throws Error(kData).
ToolCalls tool_calls(const std::string& content);

// A call as Qwen writes it: {"name": .., "arguments": ..}.
std::string qwen_calls(const ToolCalls& calls);

// JSON as Python's json.dumps(ensure_ascii=False): ", " and ": " between values.
std::string python_json(const nlohmann::ordered_json& value);

}  // namespace piton
