// The forms in which models write calls of tools.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

struct CallableTool {
  std::string name;
  nlohmann::ordered_json parameters;  // JSON schema of its arguments; null: none is given
};

struct FunctionCall {
  std::string name;
  std::string arguments;  // JSON
  bool operator==(const FunctionCall&) const = default;
};

// Words around calls within a text.
struct CallMarks {
  std::string_view open;
  std::string_view close;
};
inline constexpr auto kCallMarks = std::to_array<CallMarks>({
    {"<tool_call>", "</tool_call>"},
    {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
});

// The calls in `inner`, the text between two marks. None if one of them is malformed or names no
// tool.
//
// Values between tags are texts: those of a parameter that the schema has as "string" stay as they
// are, others are read as JSON, or stay texts if they are none.
std::vector<FunctionCall> marked_calls(const CallMarks& marks, std::string_view inner,
                                       const std::vector<CallableTool>& tools);

// Those of an answer of calls alone, in JSON, with or without a mark before them (Mistral, Llama
// 3). None if it is something else.
std::vector<FunctionCall> calls_alone(std::string_view text,
                                      const std::vector<CallableTool>& tools);
// Whether an answer that begins so may be one of calls alone.
bool may_be_calls_alone(std::string_view text);

}  // namespace piton
