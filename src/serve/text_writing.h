// One request for texts while it is answered: tokens come from the loop, and the client gets what
// is certain of their text.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/answers.h"
#include "serve/decoding_loop.h"
#include "serve/http/http_server.h"
#include "serve/server_metrics.h"

namespace piton {

// What a service answers with. References must outlive all answers.
struct WritingPlace {
  ServedModel& model;
  DecodingLoop& loop;
  ServerMetrics& metrics;
  std::chrono::milliseconds deadline;  // from a request to the end of its answer
};

class TextWriting {
 public:
  // Submits the texts. `number`: of the answer. Throws RequestError.
  TextWriting(const WritingPlace& place, TextRequest request, std::uint64_t number,
              const HttpClient& client);

  const TextRequest& request() const { return request_; }

  // The whole answer. Throws RequestError.
  nlohmann::ordered_json whole(const HttpClient& client);
  // Writes the events of a stream.
  void stream(const HttpAnswer::Write& to_client, const HttpClient& client);

 private:
  using Clock = std::chrono::steady_clock;
  struct Echo {
    std::string text;
    std::int64_t characters = 0;         // of `text`
    std::vector<GeneratedToken> tokens;  // the first has no likelihood; none without logprobs
    std::vector<std::int64_t> offsets;   // of `tokens`
  };
  // The new text of one, false if the client is gone.
  using Each = std::function<bool(std::size_t text, const std::string& written)>;

  // Throws RequestError.
  void check_time_and(const HttpClient& client) const;
  void read_prompts(const HttpClient& client);
  const Echo* echo_of(std::size_t text) const;
  // Characters before the text, in its answer.
  std::int64_t begin_of(std::size_t text) const;
  // The next parts of a text that has grown by `written`. After its last one end_of() is known.
  ReasoningText::Parts parts_of(std::size_t text, const std::string& written);
  AnswerEnd end_of(std::size_t text) const;
  // Reads tokens until all texts are finished. Throws RequestError.
  void write(const Each& each, const HttpClient& client);

  WritingPlace place_;
  TextRequest request_;
  std::unique_ptr<AnswerForm> form_;
  std::vector<WrittenText> texts_;
  std::vector<ReasoningText> reasoning_;       // in them
  std::vector<std::size_t> reasoning_tokens_;  // of texts_, up to the end of their reasoning
  std::vector<ToolCallText> tool_calls_;       // in what comes after it
  std::vector<ReasoningText::Parts> shown_;    // of whole answers
  std::vector<Echo> echoes_;                   // of each prompt
  std::unique_ptr<WritingJob> job_;
  TokenUsage usage_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace piton
