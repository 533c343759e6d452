// A language model as the start of a reward model (model/reward_head.h).
#pragma once

#include "model_files/opened_model.h"

namespace piton {

// Replaces the head of the model over its vocabulary by a head of rewards, which is 0: so the first
// loss of pairs is log 2. Nothing happens to a reward model. Throws Error(kData) for an encoder.
void make_reward_model(OpenedModel& opened);

}  // namespace piton
