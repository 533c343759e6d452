#include "serve/answers.h"

#include <chrono>

#include "generate/constraints/token_bytes.h"
#include "serve/completion_answer.h"
#include "serve/http/json_line.h"
#include "serve/message_answer.h"
#include "serve/response_answer.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

Json likelihood_json(const LikelyToken& token, const Tokenizer& tokenizer) {
  const std::string bytes = shown_bytes(tokenizer, token.id);
  Json values = Json::array();
  for (const char byte : bytes) values.push_back(static_cast<std::uint8_t>(byte));
  return {{"token", replace_bad_utf8(bytes)},
          {"logprob", token.log_probability},
          {"bytes", std::move(values)}};
}

}  // namespace

std::unique_ptr<AnswerForm> make_answer_form(const TextRequest& request, const ServedModel& model,
                                             std::uint64_t number) {
  switch (request.kind) {
    case AnswerKind::kResponse:
      return std::make_unique<ResponseAnswer>(request, model, number);
    case AnswerKind::kMessage:
      return std::make_unique<MessageAnswer>(request, model, number);
    case AnswerKind::kCompletion:
    case AnswerKind::kChat:
      break;
  }
  return std::make_unique<CompletionAnswer>(request, model, number);
}

std::int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string shown_bytes(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.is_special(id) ? tokenizer.piece(id) : token_bytes(tokenizer, id);
}

Json likelihoods_json(std::span<const GeneratedToken> tokens, const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const GeneratedToken& token : tokens) {
    Json entry = likelihood_json(token, tokenizer);
    entry["top_logprobs"] = Json::array();
    for (const LikelyToken& other : token.likeliest)
      entry["top_logprobs"].push_back(likelihood_json(other, tokenizer));
    list.push_back(std::move(entry));
  }
  return list;
}

std::string typed_event(const Json& json) {
  return fmt::format("event: {}\ndata: {}\n\n", json["type"].get_ref<const std::string&>(),
                     json_line(json));
}

}  // namespace piton
