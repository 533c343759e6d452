// The keys that the tokens of a prompt see (--sparse-mode 5 and 6, model/attention_options.h).
#pragma once

#include <cstdint>
#include <vector>

#include "data/samples/batch.h"

namespace piton {

// Of each row, the position in its sample of the first row of its document that has a label, which
// is the last row of the prompt; its own position if no row has one. Rows after a prompt get a
// position before their own, which changes nothing (kernels/attention.h). [b*s]
std::vector<std::int32_t> prompt_reach(const MicroBatch& batch);

}  // namespace piton
