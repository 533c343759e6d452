#include "rollouts/rollout_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/options/option_range.h"
#include "rollouts/reward.h"

namespace piton {
namespace {

constexpr std::int64_t kMostGenerations = 1 << 16;
constexpr std::int64_t kMostTokens = 1 << 20;
constexpr std::int64_t kMostUpdates = 1 << 10;
constexpr std::array<std::string_view, 5> kRewards = {"answer", "pattern", "command", kModelReward,
                                                      kOverlongReward};
constexpr std::int64_t kMostRounds = 1 << 10;

void check_argument(const RolloutOptions& options, std::string_view reward,
                    const std::string& value, std::string_view what) {
  const bool named = std::ranges::count(options.rewards, reward) > 0;
  if (named && value.empty()) {
    throw Error(Fault::kUsage, "--reward {}: needs --reward-{} {}", reward, reward, what);
  }
  if (!named && !value.empty()) {
    throw Error(Fault::kUsage, "--reward-{}: is for --reward {}, which is not given; add it",
                reward, reward);
  }
}

void check_clipping(const RolloutOptions& options) {
  check_range("--num-iterations", options.num_iterations, 1, kMostUpdates);
  if (!(options.epsilon > 0) || !(options.epsilon < 1)) {
    throw Error(Fault::kUsage, "--grpo-epsilon: got {}, wanted a number between 0 and 1",
                options.epsilon);
  }
  if (!(options.clip_above() > 0) || !(options.clip_above() <= kMostNumber)) {
    throw Error(Fault::kUsage, "--grpo-epsilon-high: got {}, wanted a number above 0",
                options.clip_above());
  }
  const RolloutOptions usual;
  const auto refuse = [&](const char* flag, bool changed) {
    if (!changed || options.updates() > 1) return;
    throw Error(Fault::kUsage,
                "--{}: is of a second update of a batch of answers; add --num-iterations or "
                "--num-mini-batches, or leave it out",
                flag);
  };
  const bool cispo = options.loss == PolicyLossKind::kCispo;
  refuse("grpo-epsilon", options.epsilon != usual.epsilon);
  if (!cispo) refuse("grpo-epsilon-high", options.epsilon_high.has_value());
  refuse("importance-sampling-level", options.ratio != usual.ratio);
  if (cispo && !options.epsilon_high) {
    throw Error(Fault::kUsage,
                "--grpo-loss-type cispo: needs --grpo-epsilon-high, the bound of weights, such as "
                "5");
  }
  const bool sapo = options.loss == PolicyLossKind::kSapo;
  const bool clips = !cispo && !sapo;
  const auto only = [](const char* flag, bool changed, bool has, const char* kinds) {
    if (!changed || has) return;
    throw Error(Fault::kUsage, "--{}: is for --grpo-loss-type {}; leave it out", flag, kinds);
  };
  only("grpo-epsilon", options.epsilon != usual.epsilon, clips,
       "grpo, dr_grpo, dapo, bnpo and rloo");
  only("importance-sampling-level", options.ratio != usual.ratio,
       options.loss != PolicyLossKind::kRloo, "grpo, dr_grpo, dapo, bnpo, cispo and sapo");
  only("grpo-epsilon-high", options.epsilon_high.has_value(), !sapo,
       "grpo, dr_grpo, dapo, bnpo, cispo and rloo");
  only("sapo-temperature-pos", options.sapo_positive != usual.sapo_positive, sapo, "sapo");
  only("sapo-temperature-neg", options.sapo_negative != usual.sapo_negative, sapo, "sapo");
  check_positive("--sapo-temperature-pos", options.sapo_positive);
  check_positive("--sapo-temperature-neg", options.sapo_negative);
}

void check_draws(const RolloutOptions& options) {
  check_positive("--rollout-temperature", options.temperature);
  check_range("--rollout-top-k", options.top_k, 0);
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw Error(Fault::kUsage, "--rollout-top-p: got {}, wanted more than 0, at most 1",
                options.top_p);
  }
  if (!(options.min_p >= 0 && options.min_p <= 1))
    throw Error(Fault::kUsage, "--rollout-min-p: got {}, wanted 0 to 1", options.min_p);
}

void check_overlong(const RolloutOptions& options) {
  const bool named = std::ranges::count(options.rewards, kOverlongReward) > 0;
  const std::int64_t buffer = options.overlong_buffer;
  if (!named && buffer != 0) {
    throw Error(Fault::kUsage,
                "--reward-overlong-buffer: is for --reward overlong, which is not given; add it");
  }
  if (named) check_range("--reward-overlong-buffer", buffer, 1, options.max_completion_length - 1);
}

}  // namespace

void RolloutOptions::check() const {
  check_range("--max-completion-length", max_completion_length, 1, kMostTokens);
  check_range("--reward-timeout", reward_timeout, 1, 1 << 20);
  check_range("--log-completions", log_completions, 0, kLargestSize);
  check_range("--num-mini-batches", num_mini_batches, 1, kMostUpdates);
  if (rewards.empty()) {
    throw Error(Fault::kUsage,
                "--stage {}: no reward; give --reward answer, pattern, command, model or overlong",
                by_ppo ? "ppo" : "grpo");
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (std::ranges::count(kRewards, rewards[i]) == 0) {
      throw Error(Fault::kUsage,
                  "--reward: got {}, wanted answer, pattern, command, model or overlong",
                  rewards[i]);
    }
    if (std::ranges::count(rewards, rewards[i]) > 1) {
      throw Error(Fault::kUsage, "--reward: got {} twice; name each once (--reward-weights)",
                  rewards[i]);
    }
  }
  if (by_ppo) {
    refuse_grpo("ppo");
    ppo.check();
  } else {
    check_grpo();
    ppo.check_absent("grpo");
  }
  check_draws(*this);
  check_overlong(*this);
  check_argument(*this, "pattern", reward_pattern, "REGEX");
  if (!reward_pattern.empty()) check_reward_pattern(reward_pattern);
  check_argument(*this, "command", reward_command, "TEXT");
  check_argument(*this, kModelReward, reward_model, "DIR");
  if (!reward_weights.empty() && reward_weights.size() != rewards.size()) {
    throw Error(Fault::kUsage,
                "--reward-weights: got {} weights, wanted one for each of {} --reward",
                reward_weights.size(), rewards.size());
  }
  for (const double weight : reward_weights) {
    if (!std::isfinite(weight) || std::abs(weight) > kMostNumber)
      throw Error(Fault::kUsage, "--reward-weights: got {}, wanted finite numbers", weight);
  }
}

void RolloutOptions::check_grpo() const {
  check_range("--num-generations", num_generations, 2, kMostGenerations);
  if (estimator == AdvantageEstimator::kRloo && scale_rewards == RewardScale::kGroup) {
    throw Error(Fault::kUsage,
                "--advantage-estimator rloo: divides by nothing (--scale-rewards none) or by the "
                "deviation of the batch (batch), got --scale-rewards group; give one of these");
  }
  check_clipping(*this);
  check_range("--dynamic-sampling", dynamic_sampling, 0, kMostRounds);
}

namespace {

void refuse_if(const std::string& stage, const char* flag, bool changed, const char* stages) {
  if (!changed) return;
  throw Error(Fault::kUsage, "--{}: is for --stage {}, got --stage {}; leave it out", flag, stages,
              stage);
}

}  // namespace

// What compares answers to one question, and other losses.
void RolloutOptions::refuse_grpo(const std::string& stage) const {
  const RolloutOptions usual;
  const auto refuse = [&](const char* flag, bool changed) {
    refuse_if(stage, flag, changed, "grpo");
  };
  refuse("num-generations", num_generations != usual.num_generations);
  refuse("advantage-estimator", estimator != usual.estimator);
  refuse("kl-in-reward", kl_in_reward);
  refuse("scale-rewards", scale_rewards != usual.scale_rewards);
  refuse("grpo-loss-type", loss != usual.loss);
  refuse("num-iterations", num_iterations != usual.num_iterations);
  refuse("grpo-epsilon", epsilon != usual.epsilon);
  refuse("grpo-epsilon-high", epsilon_high.has_value());
  refuse("importance-sampling-level", ratio != usual.ratio);
  refuse("dynamic-sampling", dynamic_sampling != 0);
  refuse("sapo-temperature-pos", sapo_positive != usual.sapo_positive);
  refuse("sapo-temperature-neg", sapo_negative != usual.sapo_negative);
}

void RolloutOptions::check_absent(const std::string& stage) const {
  const RolloutOptions usual;
  const auto refuse = [&](const char* flag, bool changed) {
    refuse_if(stage, flag, changed, "grpo and ppo");
  };
  refuse_grpo(stage);
  ppo.check_absent(stage);
  refuse("max-completion-length", max_completion_length != usual.max_completion_length);
  refuse("reward", !rewards.empty());
  refuse("reward-weights", !reward_weights.empty());
  refuse("reward-pattern", !reward_pattern.empty());
  refuse("reward-command", !reward_command.empty());
  refuse("reward-model", !reward_model.empty());
  refuse("reward-timeout", reward_timeout != usual.reward_timeout);
  refuse("mask-truncated-completions", mask_truncated);
  refuse("num-mini-batches", num_mini_batches != usual.num_mini_batches);
  refuse("log-completions", log_completions != 0);
  refuse("reward-overlong-buffer", overlong_buffer != 0);
  refuse("rollout-temperature", temperature != usual.temperature);
  refuse("rollout-top-k", top_k != usual.top_k);
  refuse("rollout-top-p", top_p != usual.top_p);
  refuse("rollout-min-p", min_p != usual.min_p);
}

}  // namespace piton
