#include "rollouts/rollout_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

constexpr std::int64_t kMostGenerations = 1 << 16;
constexpr std::int64_t kMostTokens = 1 << 20;
constexpr std::int64_t kMostUpdates = 1 << 10;
constexpr std::array<std::string_view, 4> kRewards = {"answer", "pattern", "command", kModelReward};

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
  check_range("--num-mini-batches", options.num_mini_batches, 1, kMostUpdates);
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
  refuse("grpo-epsilon", options.epsilon != usual.epsilon);
  refuse("grpo-epsilon-high", options.epsilon_high.has_value());
  refuse("importance-sampling-level", options.ratio != usual.ratio);
}

}  // namespace

void RolloutOptions::check() const {
  check_range("--num-generations", num_generations, 2, kMostGenerations);
  check_range("--max-completion-length", max_completion_length, 1, kMostTokens);
  check_range("--reward-timeout", reward_timeout, 1, 1 << 20);
  check_range("--log-completions", log_completions, 0, kLargestSize);
  if (rewards.empty()) {
    throw Error(Fault::kUsage,
                "--stage grpo: no reward; give --reward answer, pattern, command or model");
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (std::ranges::count(kRewards, rewards[i]) == 0) {
      throw Error(Fault::kUsage, "--reward: got {}, wanted answer, pattern, command or model",
                  rewards[i]);
    }
    if (std::ranges::count(rewards, rewards[i]) > 1) {
      throw Error(Fault::kUsage, "--reward: got {} twice; name each once (--reward-weights)",
                  rewards[i]);
    }
  }
  check_clipping(*this);
  check_argument(*this, "pattern", reward_pattern, "REGEX");
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

void RolloutOptions::check_absent(const std::string& stage) const {
  const RolloutOptions usual;
  const auto refuse = [&](const char* flag, bool changed) {
    if (!changed) return;
    throw Error(Fault::kUsage, "--{}: is for --stage grpo, got --stage {}; leave it out", flag,
                stage);
  };
  refuse("num-generations", num_generations != usual.num_generations);
  refuse("max-completion-length", max_completion_length != usual.max_completion_length);
  refuse("reward", !rewards.empty());
  refuse("reward-weights", !reward_weights.empty());
  refuse("reward-pattern", !reward_pattern.empty());
  refuse("reward-command", !reward_command.empty());
  refuse("reward-model", !reward_model.empty());
  refuse("reward-timeout", reward_timeout != usual.reward_timeout);
  refuse("scale-rewards", scale_rewards != usual.scale_rewards);
  refuse("grpo-loss-type", loss != usual.loss);
  refuse("mask-truncated-completions", mask_truncated);
  refuse("num-iterations", num_iterations != usual.num_iterations);
  refuse("num-mini-batches", num_mini_batches != usual.num_mini_batches);
  refuse("grpo-epsilon", epsilon != usual.epsilon);
  refuse("grpo-epsilon-high", epsilon_high.has_value());
  refuse("importance-sampling-level", ratio != usual.ratio);
  refuse("log-completions", log_completions != 0);
}

}  // namespace piton
