// The questions of a run with --stage grpo or ppo: records of a file, as token ids.
//
// A record has "messages" or "prompt": a conversation, whose answer the chat template begins, or a
// text ("prompt" alone), which is continued. Messages of the assistant at the end of a conversation
// are left out. Other keys are for rewards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "data/samples/sample_source.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"

namespace piton {

// "prompt" or "messages" of a record, which has one of them.
const nlohmann::ordered_json& question_in(const nlohmann::ordered_json& record);

// A conversation up to its last message that is not of the assistant.
nlohmann::ordered_json without_answer(nlohmann::ordered_json messages);

struct RolloutQuestion {
  nlohmann::ordered_json record;
  std::vector<std::int32_t> ids;
};

struct QuestionReading {
  const Tokenizer& tokenizer;
  ChatTemplateFiles templates;
  std::string template_fault;       // why these cannot be read; "": they can
  bool adds_special_tokens = true;  // to texts
  std::vector<std::int32_t> ends;   // of a text; those of the templates' turns are added
  std::int64_t longest = 0;         // tokens of a question
  bool needs_answer = false;        // rewards read the key "answer"
};

class Questions {
 public:
  // Reads files of any format of records (data/records/input_files.h). Records that are no
  // questions, or are too long, are left out with a warning. Throws Error(kData) if none is left or
  // a file cannot be read, and Error(kUsage) for a path that is no file.
  Questions(const std::vector<std::string>& files, const QuestionReading& reading,
            std::uint64_t seed, Log& log);

  std::int64_t size() const { return std::ssize(questions_); }
  // Question number `place` of the run: each epoch has all of them, in another order.
  const RolloutQuestion& at(std::int64_t place) const { return at(place, 0); }
  // The same of another of the orders, which --dynamic-sampling takes further questions from.
  const RolloutQuestion& at(std::int64_t place, std::int64_t order) const;
  const std::vector<std::int32_t>& ends() const { return ends_; }
  // Identifies the questions: "120 questions, 0123abcd".
  const std::string& identity() const { return identity_; }

 private:
  void read(const std::vector<std::string>& files, const QuestionReading& reading, Log& log);

  std::vector<RolloutQuestion> questions_;
  std::vector<std::int32_t> ends_;
  std::string identity_;
  std::uint64_t seed_;
  mutable std::int64_t epoch_ = -1;  // of order_, with the number of the order
  mutable std::int64_t number_ = 0;
  mutable std::vector<std::int64_t> order_;
};

// Questions as samples without labels, one for each answer: what the checks of a run see of its
// data. `generations`: answers to each question.
std::shared_ptr<const SampleSource> samples_of_questions(std::shared_ptr<const Questions> questions,
                                                         std::int64_t generations,
                                                         std::int64_t sequence);

}  // namespace piton
