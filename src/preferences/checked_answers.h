// Whether batches have the answers that a stage learns from.
#pragma once

#include <vector>

#include "data/samples/batch.h"
#include "preferences/preference_options.h"

namespace piton {

// Throws Error(kData) for a batch whose samples have no answers, or others than the stage of
// `options` compares: pairs, or judged answers.
void check_answers(const PreferenceOptions& options, const std::vector<MicroBatch>& batches);

}  // namespace piton
