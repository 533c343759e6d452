// Options of reinforcement learning with rewards that programs compute (--stage grpo and ppo), with
// the names of TRL's GRPOConfig; those of ppo alone are in rollouts/ppo_options.h. The formulas are
// in rollouts/policy_loss.h and rollouts/advantages.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "rollouts/ppo_options.h"

namespace piton {

// What the deviations of rewards are divided by.
enum class RewardScale : std::uint8_t { kGroup, kBatch, kNone };

// What the reward of an answer is compared with: the mean of its group, or of the others in it.
enum class AdvantageEstimator : std::uint8_t { kGrpo, kRloo };

struct AdvantageRules {
  RewardScale scale = RewardScale::kGroup;
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
};

// What the losses of tokens are divided by; kRloo: losses of whole answers.
enum class PolicyLossKind : std::uint8_t { kGrpo, kDrGrpo, kDapo, kBnpo, kCispo, kSapo, kRloo };

// Of what the ratio of probabilities is: a token, or the geometric mean of the tokens of an answer.
enum class RatioLevel : std::uint8_t { kToken, kSequence };

// The penalty of long answers.
inline constexpr const char* kOverlongReward = "overlong";

// The reward that is read from --reward-model.
inline constexpr const char* kModelReward = "model";

struct RolloutOptions {
  std::int64_t num_generations = 8;
  std::int64_t max_completion_length = 256;
  std::vector<std::string> rewards;
  std::vector<double> reward_weights;  // empty: 1 each
  std::string reward_pattern;
  std::string reward_command;
  std::string reward_model;
  std::int64_t reward_timeout = 60;
  std::int64_t overlong_buffer = 0;
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  std::int64_t dynamic_sampling = 0;
  AdvantageEstimator estimator = AdvantageEstimator::kGrpo;
  RewardScale scale_rewards = RewardScale::kGroup;
  bool kl_in_reward = false;
  PolicyLossKind loss = PolicyLossKind::kDapo;
  bool mask_truncated = false;
  std::int64_t num_iterations = 1;
  std::int64_t num_mini_batches = 1;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;
  RatioLevel ratio = RatioLevel::kToken;
  double sapo_positive = 1;
  double sapo_negative = 1.05;
  std::int64_t log_completions = 0;
  PpoOptions ppo;
  bool by_ppo = false;  // --stage ppo; no option

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"num-generations", "answers to each question, which grpo compares with one another",
             same},
      num_generations);
    v(Option{"max-completion-length", "largest number of tokens of an answer", same},
      max_completion_length);
    visit_draws(v);
    visit_rewards(v);
    v(Option{"advantage-estimator",
             "what the reward of an answer is compared with: the mean of all answers to its "
             "question (grpo), or of the others (rloo: leave one out)",
             same},
      Choice(estimator,
             {{"grpo", AdvantageEstimator::kGrpo}, {"rloo", AdvantageEstimator::kRloo}}));
    v(Option{"kl-in-reward",
             "take --grpo-beta times the divergence of an answer from the reference from its "
             "reward, instead of adding a divergence to the loss",
             same},
      kl_in_reward);
    v(Option{"scale-rewards",
             "divide the deviations of rewards from the mean of their question by the standard "
             "deviation of the question's rewards (group), of the whole batch, or by nothing",
             same},
      Choice(scale_rewards, {{"group", RewardScale::kGroup},
                             {"batch", RewardScale::kBatch},
                             {"none", RewardScale::kNone}}));
    v(Option{"grpo-loss-type",
             "what losses of tokens are divided by: the length of their answer (grpo), "
             "--max-completion-length (dr_grpo), the tokens of the batch (dapo), or those of the "
             "micro-batch (bnpo); or a loss with weights that are bounded (cispo) or a gate (sapo) "
             "in place of clipping; or a loss of each answer as a whole (rloo)",
             same},
      Choice(loss, {{"grpo", PolicyLossKind::kGrpo},
                    {"dr_grpo", PolicyLossKind::kDrGrpo},
                    {"dapo", PolicyLossKind::kDapo},
                    {"bnpo", PolicyLossKind::kBnpo},
                    {"cispo", PolicyLossKind::kCispo},
                    {"sapo", PolicyLossKind::kSapo},
                    {"rloo", PolicyLossKind::kRloo}}));
    v(Option{"mask-truncated-completions",
             "leave answers that reach --max-completion-length without an end out of the loss",
             same},
      mask_truncated);
    visit_updates(v);
    v(Option{"log-completions",
             "write the first N answers of each update, with their rewards, to completions.jsonl "
             "in --save",
             {.placeholder = "N"}},
      log_completions);
    ppo.visit(v);
  }

  // How answers are drawn.
  template <typename Visitor>
  void visit_draws(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"rollout-temperature",
             "divisor of the logits of the model in training and of the reference, and so of those "
             "that answers are drawn from",
             same},
      temperature);
    v(Option{"rollout-top-k", "draw tokens of answers from the k most likely ones (0: all)", same},
      top_k);
    v(Option{"rollout-top-p",
             "draw tokens of answers from the fewest whose probabilities reach p (1: all)", same},
      top_p);
    v(Option{"rollout-min-p",
             "draw tokens of answers from those at least p times as likely as the most likely one",
             same},
      min_p);
    v(Option{"dynamic-sampling",
             "put further questions in the place of those whose answers all earn the same, at most "
             "this many times for an update (DAPO)",
             {.resume = Resume::kMustMatch, .placeholder = "N"}},
      dynamic_sampling);
  }

  // The updates of a batch of answers.
  template <typename Visitor>
  void visit_updates(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    const auto shown = [](const char* placeholder) {
      return OptionRules{.resume = Resume::kMustMatch, .placeholder = placeholder};
    };
    v(Option{"num-iterations", "how often each batch of answers is learned from", same},
      num_iterations);
    v(Option{"num-mini-batches",
             "parts of a batch of answers that are learned one after another, an update each",
             same},
      num_mini_batches);
    v(Option{"grpo-epsilon",
             "a token is not made more unlikely than 1 - this, or likelier than 1 + this, times "
             "its probability when it was written; with several updates of a batch",
             same},
      epsilon);
    v(Option{"grpo-epsilon-high",
             "the same for likelier tokens alone (default: --grpo-epsilon); of --grpo-loss-type "
             "cispo the "
             "bound of weights",
             shown("X")},
      epsilon_high);
    v(Option{"importance-sampling-level",
             "that ratio is of each token, or of an answer: the geometric mean of those of its "
             "tokens (GSPO)",
             same},
      Choice(ratio, {{"token", RatioLevel::kToken}, {"sequence", RatioLevel::kSequence}}));
    v(Option{"sapo-temperature-pos",
             "steepness of the gate of --grpo-loss-type sapo for answers that are better than the "
             "others",
             same},
      sapo_positive);
    v(Option{"sapo-temperature-neg", "the same for all other answers", same}, sapo_negative);
  }

  template <typename Visitor>
  void visit_rewards(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    const auto shown = [](const char* placeholder) {
      return OptionRules{.resume = Resume::kMustMatch, .placeholder = placeholder};
    };
    v(Option{"reward",
             "rewards of an answer, which are summed: answer (its final answer is the record's "
             "\"answer\"), pattern (--reward-pattern), command (--reward-command), model "
             "(--reward-model), overlong (a penalty: --reward-overlong-buffer)",
             shown("NAME")},
      rewards);
    v(Option{"reward-weights", "weight of each --reward in the sum (default: 1 each)", shown("W")},
      reward_weights);
    v(Option{"reward-pattern",
             "regular expression of --reward pattern: 1 for an answer that matches as a whole, "
             "else 0",
             shown("REGEX")},
      reward_pattern);
    v(Option{"reward-command",
             "program of --reward command, started once by a shell: reads a JSON object of an "
             "answer from each line, writes its reward, a number, to a line",
             shown("TEXT")},
      reward_command);
    v(Option{"reward-model",
             "model of --reward model, as --stage rm trains them: reads the question and the "
             "answer in its own chat template",
             {.placeholder = "DIR"}},
      reward_model);
    v(Option{"reward-overlong-buffer",
             "tokens before --max-completion-length in which --reward overlong falls from 0 to -1",
             shown("N")},
      overlong_buffer);
    v(Option{"reward-timeout",
             "seconds that --reward-command may be silent before the run ends with an error",
             {.placeholder = "N"}},
      reward_timeout);
  }

  // Throws Error(kUsage) for values that are out of range or contradict each other.
  void check() const;
  // The same for a run of another stage: none of them may be given.
  void check_absent(const std::string& stage) const;
  // Answers to each question, which are compared with one another: with a critic they need not be.
  std::int64_t group() const { return by_ppo ? 1 : num_generations; }
  // How often a batch of answers is learned from.
  std::int64_t passes() const { return by_ppo ? ppo.epochs : num_iterations; }
  // Updates of a batch of answers.
  std::int64_t updates() const { return passes() * num_mini_batches; }
  double clip_above() const { return epsilon_high.value_or(epsilon); }
  AdvantageRules advantage_rules() const {
    return {.scale = scale_rewards, .estimator = estimator};
  }
  // Of rewards[i].
  double weight(std::size_t i) const { return reward_weights.empty() ? 1 : reward_weights.at(i); }

 private:
  void check_grpo() const;
  void refuse_grpo(const std::string& stage) const;
};

}  // namespace piton
