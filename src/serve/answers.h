// Answers in OpenAI's form: objects and parts of streams.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/chat/tool_calls.h"
#include "serve/text_request.h"
#include "serve/written_text.h"

namespace piton {

struct TokenUsage {
  std::int64_t prompt = 0;
  std::int64_t written = 0;
  std::optional<std::int64_t> reasoning = {};  // of these, before the answer; unset: not looked for
};

class AnswerForm {
 public:
  using Json = nlohmann::ordered_json;

  // References must outlive it. `id`: of the answer; `created`: seconds since 1970.
  AnswerForm(const TextRequest& request, const ServedModel& model, std::string id,
             std::int64_t created);

  // The whole answer. `echoes`: the choices' prompts, where they are echoed.
  struct Choice {
    std::string text;                        // with the echo
    std::string reasoning = {};              // before the text
    std::span<const GeneratedToken> tokens;  // of `text`
    std::span<const std::int64_t> offsets;   // of `tokens`, in the text of the whole answer
    // The first token of an echo has no likelihood.
    bool first_is_unknown = false;
    FinishReason reason = FinishReason::kNone;
    std::vector<FunctionCall> calls;  // of tools
  };
  Json whole(std::span<const Choice> choices, TokenUsage usage) const;

  // Parts of a stream. `index`: of the choice. first_part() is for chat alone.
  Json first_part(std::size_t index) const;
  Json part(std::size_t index, const Choice& choice) const;
  Json calls_part(std::size_t index, std::span<const FunctionCall> calls) const;
  Json last_part(std::size_t index, FinishReason reason, bool has_calls = false) const;
  Json usage_part(TokenUsage usage) const;

 private:
  Json head(bool streams) const;
  Json log_probabilities(const Choice& choice) const;
  Json chat_token(const LikelyToken& token) const;
  Json calls_json(std::size_t index, std::span<const FunctionCall> calls) const;

  const TextRequest& request_;
  const ServedModel& model_;
  std::string id_;
  std::int64_t created_;
};

// JSON on one line; bytes that are no characters as U+FFFD.
std::string json_line(const nlohmann::ordered_json& json);
// An event of a stream (text/event-stream).
std::string stream_event(const nlohmann::ordered_json& json);

}  // namespace piton
