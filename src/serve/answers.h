// What a client gets for a request for texts: one object, or events of a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/chat/tool_calls.h"
#include "serve/http/request_error.h"
#include "serve/text_request.h"
#include "serve/written_text.h"

namespace piton {

struct TokenUsage {
  std::int64_t prompt = 0;
  std::int64_t reused = 0;  // of these, found in the cache; known from the first token on
  std::int64_t written = 0;
  std::optional<std::int64_t> reasoning = {};  // of these, before the answer; unset: not looked for
};

// A text of an answer, or a part of it.
struct AnswerChoice {
  std::string text;                        // with the echo
  std::string reasoning = {};              // before the text
  std::span<const GeneratedToken> tokens;  // of both
  std::size_t reasoning_tokens = 0;        // the first ones of `tokens`
  std::span<const std::int64_t> offsets;   // of `tokens`, in the text of the whole answer
  // The first token of an echo has no likelihood.
  bool first_is_unknown = false;
};

// How a text ended.
struct AnswerEnd {
  FinishReason reason = FinishReason::kNone;
  std::string stop_word = {};            // that it met; "": none
  std::vector<FunctionCall> calls = {};  // of tools
};

// One answer in the form of its path. For an answer at once whole() is called alone; for a stream
// begin(), for each text first_part(), part() and last_part(), and end(), which return events
// (text/event-stream), or "".
class AnswerForm {
 public:
  using Json = nlohmann::ordered_json;
  virtual ~AnswerForm() = default;

  // One entry for each text.
  virtual Json whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
                     TokenUsage usage) = 0;

  // `usage`: of the prompt.
  virtual std::string begin(TokenUsage usage) = 0;
  // `index`: of the text.
  virtual std::string first_part(std::size_t index) = 0;
  virtual std::string part(std::size_t index, const AnswerChoice& choice) = 0;
  virtual std::string last_part(std::size_t index, const AnswerEnd& end) = 0;
  virtual std::string end(TokenUsage usage) = 0;
  // The last event of a stream that cannot be continued.
  virtual std::string failed(const RequestError& error) = 0;
};

// References must outlive it. `number`: of the answer.
std::unique_ptr<AnswerForm> make_answer_form(const TextRequest& request, const ServedModel& model,
                                             std::uint64_t number);

// Now.
std::int64_t seconds_since_1970();

// Tokens with their likelihoods and those of the likeliest ones, as chats and responses have them.
nlohmann::ordered_json likelihoods_json(std::span<const GeneratedToken> tokens,
                                        const Tokenizer& tokenizer);
// What a token adds to a text; special tokens by their names.
std::string shown_bytes(const Tokenizer& tokenizer, std::int32_t id);

// An event of a stream with a type.
std::string typed_event(const nlohmann::ordered_json& json);

}  // namespace piton
