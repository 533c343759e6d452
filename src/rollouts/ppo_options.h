// Options of --stage ppo, with the names of TRL's PPOConfig. The formulas are in
// rollouts/token_advantages.h and rollouts/value_objective.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options/options.h"

namespace piton {

struct PpoOptions {
  double gamma = 1;
  double lambda = 0.95;
  bool whiten_rewards = false;
  std::optional<double> missing_eos_penalty;
  std::int64_t epochs = 4;
  double clip = 0.2;
  double value_clip = 0.2;
  double value_weight = 0.1;
  std::string critic_model;
  std::optional<double> critic_lr;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    const auto shown = [](const char* placeholder) {
      return OptionRules{.resume = Resume::kMustMatch, .placeholder = placeholder};
    };
    v(Option{"num-ppo-epochs", "how often ppo learns from each batch of answers", same}, epochs);
    v(Option{"cliprange",
             "ppo makes a token not more unlikely than 1 - this, or likelier than 1 + this, times "
             "its probability when it was written",
             same},
      clip);
    v(Option{"gamma", "share of its value that a reward of ppo has one token earlier", same},
      gamma);
    v(Option{"lam",
             "lambda of the advantages of ppo: 1 compares rewards with the value of a token, 0 the "
             "value of the next token with it",
             same},
      lambda);
    v(Option{"whiten-rewards", "divide the rewards of tokens by their standard deviation", same},
      whiten_rewards);
    v(Option{"missing-eos-penalty",
             "taken from the reward of an answer that has --max-completion-length tokens without "
             "an end",
             shown("X")},
      missing_eos_penalty);
    v(Option{"critic-model",
             "model that the critic of ppo starts from: a reward model, or a language model, which "
             "gets a head that is 0 (default: --reward-model; without one --load)",
             {.placeholder = "DIR"}},
      critic_model);
    v(Option{"critic-lr", "learning rate of the critic, with the schedule of --lr (default: --lr)",
             shown("X")},
      critic_lr);
    v(Option{"cliprange-value",
             "how far the value of a token may be from that when the answer was written", same},
      value_clip);
    v(Option{"vf-coef", "weight of the loss of the critic", same}, value_weight);
  }

  // Throws Error(kUsage) for values that are out of range.
  void check() const;
  // The same for a run of another stage: none of them may be given.
  void check_absent(const std::string& stage) const;
};

}  // namespace piton
