// A language model or an encoder as the start of a classifier of texts, or of a reward model
// (model/label_head.h).
#pragma once

#include "model/label_head.h"
#include "model_files/opened_model.h"

namespace piton {

// Replaces the heads of the model by one for labels, which is 0: so the first loss is that of equal
// probabilities, of pairs of rewards log 2. A pooler stays; OpenedModel::drawn says that a new one
// is to be drawn. Nothing happens to a model that has such a head. Throws Error(kData) for a model
// that cannot have it: an encoder with a decoder, an encoder that is to give rewards.
void make_classifier(OpenedModel& opened, const WantedLabels& wanted);
inline void make_reward_model(OpenedModel& opened) { make_classifier(opened, {}); }

}  // namespace piton
