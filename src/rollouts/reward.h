// Rewards of answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "rollouts/rollout_options.h"

namespace piton {

// An answer of the model to a question.
struct JudgedAnswer {
  const nlohmann::ordered_json* record = nullptr;  // with the question
  std::string completion;                          // without special tokens
  std::int64_t tokens = 0;                         // of the answer, with its end
};

class Reward {
 public:
  virtual ~Reward() = default;
  // One number for each answer. Throws Error(kData) if one cannot be computed.
  virtual std::vector<double> rewards(std::span<const JudgedAnswer> answers) = 0;
};

// One for each of options.rewards, null for "model" (rollouts/reward_model.h). Throws Error(kUsage)
// for a pattern that is no regular expression, and Error(kData) for a program that cannot be
// started.
std::vector<std::unique_ptr<Reward>> make_rewards(const RolloutOptions& options);

// Throws Error(kUsage) for a --reward-pattern that is no regular expression.
void check_reward_pattern(const std::string& expression);

// The text of the key "answer" of a record: a text, or a number as it is written. Throws
// Error(kData) for other values, and without it.
std::string answer_of_record(const nlohmann::ordered_json& record);

// What a program reads about an answer: "prompt" (a text, or the messages of the question),
// "completion", and the other keys of the record.
std::string line_about(const JudgedAnswer& answer);

}  // namespace piton
