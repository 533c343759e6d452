// Answers of /v1/responses: a list of items. Streams have typed events with numbers.
#pragma once

#include <initializer_list>
#include <utility>

#include "serve/block_answer.h"

namespace piton {

class ResponseAnswer final : public BlockAnswer {
 public:
  ResponseAnswer(const TextRequest& request, const ServedModel& model, std::uint64_t number);

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

  Json response(const char* status) const;
  // Its status is that of how the text has ended.
  Json ended_response(FinishReason reason, TokenUsage usage) const;
  std::string item_id(const char* kind, std::size_t index) const;
  Json reasoning_item(std::size_t index, const std::string& text) const;
  Json message_item(std::size_t index, const std::string& text, Json likelihoods,
                    FinishReason reason) const;
  Json call_item(std::size_t index, const FunctionCall& call) const;
  // An event about item `index`. `kind`: of the item's id; "": the event has none.
  std::string item_event(const char* type, std::size_t index, const char* kind, Json fields);
  std::string event(const char* type, Json fields);
  std::string part_event(const char* type, std::size_t index, const char* kind, Json part);

  const TextRequest& request_;
  const ServedModel& model_;
  std::uint64_t number_;
  std::int64_t created_ = seconds_since_1970();
  std::int64_t events_ = 0;
  Json output_ = Json::array();       // items that are complete
  Json likelihoods_ = Json::array();  // of the text
};

}  // namespace piton
