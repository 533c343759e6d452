// The head of a reward model: one row, reward.weight [1, h], in the place of the head over the
// vocabulary. Its output for the last token of a text is the reward of the text, as of
// ...ForSequenceClassification with one label in Transformers.
//
// It is a head over a vocabulary of one id, 0. The loss of a token with another label is then the
// log of the sum over one logit, exp(logit): the logit itself. So the loss of a row with this label
// is its reward, the gradient of the logit is the weight of the row, and head_loss
// (ops/head_loss.h) splits, slices and sums rewards as it does losses.
#pragma once

#include <cstdint>

namespace piton {

inline constexpr const char* kRewardTensor = "reward.weight";

// The label of a row that has a reward; others have kNoLabel (data/samples/sample.h).
inline constexpr std::int32_t kRewardLabel = 1;

}  // namespace piton
