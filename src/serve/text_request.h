// A request for texts, and the fields that several kinds of them share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "generate/constraints/grammar_constraint.h"
#include "serve/chat/reasoning_text.h"
#include "serve/chat/tool_forms.h"
#include "serve/decoding_loop.h"
#include "serve/http/request_fields.h"
#include "serve/served_model.h"

namespace piton {

struct RequestLimits {
  std::int64_t new_tokens = 0;  // largest max_tokens of a request
  std::int64_t texts = 128;     // prompts x n
  bool finds_reasoning = true;  // in answers of chats (serve/chat/reasoning_text.h)
};

// By path, in the form of whose service the answer is.
enum class AnswerKind : std::uint8_t {
  kCompletion,  // /v1/completions
  kChat,        // /v1/chat/completions
  kResponse,    // /v1/responses
  kMessage,     // /v1/messages
};

struct TextRequest {
  AnswerKind kind = AnswerKind::kCompletion;
  std::optional<std::int64_t> adapter;  // ServedModel::adapters
  std::vector<std::vector<std::int32_t>> prompts;
  SamplingOptions sampling;
  bool generates = true;     // false: max_tokens is 0, only the prompt is scored
  std::int64_t samples = 1;  // of each prompt
  std::vector<std::string> stop;
  std::vector<std::int32_t> ends;
  bool stream = false;
  bool stream_usage = false;              // a last part with the numbers of tokens
  bool echo = false;                      // the text begins with the prompt
  std::optional<std::int64_t> likeliest;  // log-probabilities: of how many other tokens
  ReasoningPlace reasoning = ReasoningPlace::kNone;
  std::vector<CallableTool> tools;  // that an answer may call; serve/chat/tool_calls.h
  bool several_calls = true;        // else the first one of an answer
  ConstraintText constraint;
  std::shared_ptr<const ByteGrammar> grammar;
  nlohmann::ordered_json settings;  // of a response, which are repeated in it

  // What the engine writes: the samples of the first prompt, then those of the second, ...
  std::vector<TextToWrite> texts() const;
  std::size_t prompt_of(std::size_t text) const { return text / static_cast<std::size_t>(samples); }
};

// The texts of field `name` as ids: a text, a list of texts, ids, or lists of ids.
std::vector<std::vector<std::int32_t>> read_texts(RequestFields& fields, const std::string& name,
                                                  const ServedModel& model);

// For all requests with the field "model": the adapter that it names; nothing for the model itself
// and without the field. Throws RequestError(404), with the names that there are, if it names
// another one.
std::optional<std::int64_t> named_adapter(const std::optional<std::string>& name,
                                          const ServedModel& model);

// The number of likeliest tokens that a request may ask for.
inline constexpr std::int64_t kMostLikeliest = 20;

// The following read fields that several kinds of request have. They throw RequestError(400).

// Of all that write texts: the model, sampling, end, and fields without influence. `stop`: the name
// of the field with words that end a text.
void read_shared_fields(RequestFields& fields, TextRequest& request, const ServedModel& model,
                        const std::string& stop = "stop");
// What OpenAI's two older paths share too: "n", "response_format", guided_..., "stream_options".
void read_completion_fields(RequestFields& fields, TextRequest& request);
// `asked`: most tokens of the answer; unset: what the model has room for.
void set_length(TextRequest& request, std::optional<std::int64_t> asked,
                const RequestLimits& limits);
// `field`: that the constraint comes from.
void set_constraint(TextRequest& request, ConstraintText constraint, const std::string& field);
void check_prompts(const TextRequest& request, const ServedModel& model,
                   const RequestLimits& limits, const std::string& field);

}  // namespace piton
