// What a user says of the source beside naming it: it is compared, never believed.
#pragma once

#include "convert/convert_options.h"
#include "convert/opened_model.h"

namespace piton {

// Throws Error(kUsage) naming the first flag (--load-model-type, --type, --src-tensor-model-
// parallel-size, --num-layers and other flags of a model) that contradicts the source.
void check_source(const ConvertOptions& options, const OpenedModel& from);

}  // namespace piton
