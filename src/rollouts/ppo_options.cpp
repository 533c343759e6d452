#include "rollouts/ppo_options.h"

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {
namespace {

constexpr std::int64_t kMostEpochs = 1 << 10;

void check_share(const char* flag, double value) {
  if (value >= 0 && value <= 1) return;
  throw Error(Fault::kUsage, "{}: got {}, wanted 0 to 1", flag, value);
}

}  // namespace

void PpoOptions::check() const {
  check_share("--gamma", gamma);
  check_share("--lam", lambda);
  check_range("--num-ppo-epochs", epochs, 1, kMostEpochs);
  if (!(clip > 0 && clip < 1))
    throw Error(Fault::kUsage, "--cliprange: got {}, wanted a number between 0 and 1", clip);
  check_positive("--cliprange-value", value_clip);
  check_positive("--vf-coef", value_weight);
  if (missing_eos_penalty) check_not_negative("--missing-eos-penalty", *missing_eos_penalty);
  if (critic_lr) check_positive("--critic-lr", *critic_lr);
}

void PpoOptions::check_absent(const std::string& stage) const {
  const PpoOptions usual;
  const auto refuse = [&](const char* flag, bool changed) {
    if (!changed) return;
    throw Error(Fault::kUsage, "--{}: is for --stage ppo, got --stage {}; leave it out", flag,
                stage);
  };
  refuse("num-ppo-epochs", epochs != usual.epochs);
  refuse("cliprange", clip != usual.clip);
  refuse("gamma", gamma != usual.gamma);
  refuse("lam", lambda != usual.lambda);
  refuse("whiten-rewards", whiten_rewards);
  refuse("missing-eos-penalty", missing_eos_penalty.has_value());
  refuse("critic-model", !critic_model.empty());
  refuse("critic-lr", critic_lr.has_value());
  refuse("cliprange-value", value_clip != usual.value_clip);
  refuse("vf-coef", value_weight != usual.value_weight);
}

}  // namespace piton
