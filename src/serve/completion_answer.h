// Answers of /v1/completions and /v1/chat/completions.
#pragma once

#include "serve/answers.h"

namespace piton {

class CompletionAnswer final : public AnswerForm {
 public:
  CompletionAnswer(const TextRequest& request, const ServedModel& model, std::uint64_t number);

  Json whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
             TokenUsage usage) override;
  std::string begin(TokenUsage usage) override;
  std::string first_part(std::size_t index) override;
  std::string part(std::size_t index, const AnswerChoice& choice) override;
  std::string last_part(std::size_t index, const AnswerEnd& end) override;
  std::string end(TokenUsage usage) override;
  std::string failed(const RequestError& error) override;

 private:
  Json head(bool streams) const;
  Json log_probabilities(const AnswerChoice& choice) const;
  Json calls_json(std::size_t index, std::span<const FunctionCall> calls) const;
  // An event with one choice: its text or delta, then its likelihoods and the reason of its end.
  std::string choice_event(Json choice, Json log_probabilities, Json reason) const;

  const TextRequest& request_;
  const ServedModel& model_;
  bool chat_;
  std::string id_;
  std::int64_t created_ = seconds_since_1970();
};

}  // namespace piton
