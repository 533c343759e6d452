#include "rollouts/reward.h"

#include <algorithm>

#include "base/error.h"
#include "rollouts/final_answer.h"
#include "rollouts/questions.h"
#include "rollouts/reward_program.h"
#include "text/unicode/pattern.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

class AnswerReward final : public Reward {
 public:
  std::vector<double> rewards(std::span<const JudgedAnswer> answers) override {
    std::vector<double> values;
    for (const JudgedAnswer& one : answers) {
      const bool right = answers_agree(one.completion, answer_of_record(*one.record));
      values.push_back(right ? 1 : 0);
    }
    return values;
  }
};

class PatternReward final : public Reward {
 public:
  explicit PatternReward(const std::string& expression) : pattern_(compiled(expression)) {}

  std::vector<double> rewards(std::span<const JudgedAnswer> answers) override {
    std::vector<double> values;
    for (const JudgedAnswer& one : answers) values.push_back(matches_whole(one.completion) ? 1 : 0);
    return values;
  }

 private:
  static Pattern compiled(const std::string& expression) {
    try {
      static_cast<void>(Pattern(expression, "--reward-pattern"));  // "a)(b" is none
      return Pattern("\\A(?:" + expression + ")\\z", "--reward-pattern");
    } catch (const Error& error) {
      throw Error(Fault::kUsage, std::string(error.what()));
    }
  }
  // A text on which the expression needs too much work does not match.
  bool matches_whole(const std::string& text) const {
    try {
      return !pattern_.matches(text).empty();
    } catch (const Error&) {
      return false;
    }
  }

  Pattern pattern_;
};

// The soft penalty of DAPO (Yu 2025, arXiv:2503.14476): 0 up to `longest` - `buffer` tokens, from
// there down to -1 in a line, as get_soft_overlong_punishment of TRL.
class OverlongReward final : public Reward {
 public:
  OverlongReward(std::int64_t longest, std::int64_t buffer) : longest_(longest), buffer_(buffer) {}

  std::vector<double> rewards(std::span<const JudgedAnswer> answers) override {
    std::vector<double> values;
    for (const JudgedAnswer& one : answers) {
      const auto over = static_cast<double>(one.tokens - (longest_ - buffer_));
      values.push_back(-std::clamp(over / static_cast<double>(buffer_), 0.0, 1.0));
    }
    return values;
  }

 private:
  std::int64_t longest_;
  std::int64_t buffer_;
};

class CommandReward final : public Reward {
 public:
  explicit CommandReward(const RolloutOptions& options)
      : program_(options.reward_command, options.reward_timeout) {}

  std::vector<double> rewards(std::span<const JudgedAnswer> answers) override {
    std::vector<std::string> lines;
    for (const JudgedAnswer& one : answers) lines.push_back(line_about(one));
    return program_.numbers(lines);
  }

 private:
  RewardProgram program_;
};

}  // namespace

std::vector<std::unique_ptr<Reward>> make_rewards(const RolloutOptions& options) {
  std::vector<std::unique_ptr<Reward>> rewards;
  for (const std::string& name : options.rewards) {
    if (name == kModelReward) {
      rewards.push_back(nullptr);
    } else if (name == "answer") {
      rewards.push_back(std::make_unique<AnswerReward>());
    } else if (name == "pattern") {
      rewards.push_back(std::make_unique<PatternReward>(options.reward_pattern));
    } else if (name == kOverlongReward) {
      rewards.push_back(
          std::make_unique<OverlongReward>(options.max_completion_length, options.overlong_buffer));
    } else {
      PITON_ASSERT(name == "command", "reward {}", name);
      rewards.push_back(std::make_unique<CommandReward>(options));
    }
  }
  return rewards;
}

void check_reward_pattern(const std::string& expression) {
  static_cast<void>(PatternReward(expression));
}

std::string answer_of_record(const Json& record) {
  const auto found = record.find("answer");
  if (found == record.end()) {
    throw Error(Fault::kData, "it has no \"answer\", which --reward answer compares with");
  }
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number()) return found->dump();
  throw Error(Fault::kData, "\"answer\": got {}, wanted a text or a number", found->type_name());
}

std::string line_about(const JudgedAnswer& answer) {
  const Json& record = *answer.record;
  const bool chat = !record.contains("prompt");
  Json line = Json::object();
  line["prompt"] = question_in(record);
  line["completion"] = answer.completion;
  for (const auto& [key, value] : record.items()) {
    if (key != "prompt" && key != "completion" && !(chat && key == "messages")) line[key] = value;
  }
  // Texts that were cut may end inside a character.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace piton
