// The answers of an evaluation so far, so that a killed one continues.
//
// A file of JSON lines. The first line has the key of the evaluation: what was asked of which
// model. Every other line is the answer to a request: {"request": 7, "log_likelihood": -1.5,
// "greedy": false}, with "text" if one was generated. An unfinished last line is dropped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/appended_file.h"
#include "base/json.h"

namespace piton {

struct RequestAnswer {
  double log_likelihood = 0;  // of kPreference: the reward
  bool greedy = false;
  std::string text;
};

// What must be equal for answers to be used again.
struct JournalKey {
  nlohmann::json facts;  // task, protocol, hash of the prompts, tokenizer, rules
  double probe = 0;      // the log-likelihood of a fixed text: tells models apart
};

using RequestAnswers = std::map<std::size_t, RequestAnswer>;

// A line of JSON for each answer, and back. Lines of other kinds are left out.
std::string lines_of(const RequestAnswers& answers);
void add_answer(std::string_view line, RequestAnswers& answers);

class AnswerJournal {
 public:
  // Without a path nothing is kept. Throws Error(kUsage) if the file is the journal of another
  // evaluation, Error(kData) if it cannot be read or written. Only the rank with `writes` writes.
  AnswerJournal(std::optional<std::filesystem::path> path, const JournalKey& key, bool writes);

  // Answers of an earlier run, by request.
  const RequestAnswers& answers() const { return answers_; }
  // Appends answers, all or none.
  void add(const RequestAnswers& answers);

 private:
  void read(const std::string& text, const JournalKey& key);

  std::optional<std::filesystem::path> path_;
  RequestAnswers answers_;
  std::unique_ptr<AppendedFile> file_;
};

}  // namespace piton
