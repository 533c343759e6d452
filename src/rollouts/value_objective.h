// The objective of the critic of --stage ppo (session/objective.h): the values of the tokens of
// answers. The critic is a reward model (model/label_head.h) whose number is read before each
// token of an answer.
//
//   l = c max((v - R)^2, (clip(v, o - e, o + e) - R)^2) / 2, mean over the tokens of the batch
//   dl/dv = c (v - R), or 0 where the second one is larger
//
// v: value of the text before the token; o: the same when the answer was written; R: what it is to
// be (rollouts/token_advantages.h); e: --cliprange-value; c: --vf-coef. As in PPOTrainer of TRL.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "optim/learning_rate.h"
#include "session/objective.h"
#include "session/session.h"

namespace piton {

struct ValueLossRules {
  double clip = 0.2;    // e
  double weight = 0.1;  // c
};

struct TokenValueLoss {
  double loss = 0;   // l
  double slope = 0;  // dl/dv
  bool clipped = false;
};

// `written`: o, `wanted`: R.
TokenValueLoss token_value_loss(double value, double written, double wanted,
                                const ValueLossRules& rules);

// Of each answer of a batch, by its place in it: numbers of its tokens that have labels.
struct ValueTargets {
  std::vector<std::vector<double>> written;  // o
  std::vector<std::vector<double>> wanted;   // R
};

// Labels of tokens, in whose place the numbers before them are read.
void read_values(std::vector<MicroBatch>& batches);

class ValueObjective final : public Objective {
 public:
  explicit ValueObjective(const ValueLossRules& rules) : rules_(rules) {}

  // The next calls of weigh() are for answers of one batch: MicroBatch::sample_index is the place
  // of the first one of each micro-batch in it.
  void begin_batch(ValueTargets targets) { targets_ = std::move(targets); }

  // The labels of the batches become those of values.
  ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches, bool training) override;

 private:
  ValueLossRules rules_;
  ValueTargets targets_;
};

// A second model in training.
struct Critic {
  std::unique_ptr<Session> session;
  ValueObjective objective;  // of the session
  double rate = 1;           // of its learning rate to that of the policy

  GroupRates rates(const GroupRates& of_policy) const;
};

}  // namespace piton
