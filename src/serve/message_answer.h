// Answers of /v1/messages, in the form of Anthropic's service: a list of blocks.
#pragma once

#include "serve/block_answer.h"

namespace piton {

class MessageAnswer final : public BlockAnswer {
 public:
  MessageAnswer(const TextRequest& request, const ServedModel& model, std::uint64_t number);

  Json whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
             TokenUsage usage) override;
  std::string begin(TokenUsage usage) override;
  std::string end(TokenUsage usage) override;
  std::string failed(const RequestError& error) override;

 private:
  std::string open_reasoning(std::size_t index) override;
  std::string reasoning_part(std::size_t index, const std::string& text) override;
  std::string close_reasoning(std::size_t index, const std::string& whole) override;
  std::string open_text(std::size_t index) override;
  std::string text_part(std::size_t index, const AnswerChoice& choice) override;
  std::string close_text(std::size_t index, const std::string& whole, FinishReason reason) override;
  std::string call(std::size_t index, const FunctionCall& call) override;

  Json message() const;
  Json call_block(std::size_t index, Json input, const FunctionCall& call) const;

  const TextRequest& request_;
  const ServedModel& model_;
  std::uint64_t number_;
};

// {"type": "error", "error": {"type", "message"}}
nlohmann::ordered_json message_error_json(const RequestError& error);

}  // namespace piton
