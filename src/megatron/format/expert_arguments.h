// The mixture of experts that arguments of a Megatron run describe.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/format/argument_values.h"
#include "model/config.h"

namespace piton {

// Sets the experts of `model`, whose other widths are known; `empty_layers`: places without a
// layer, ascending; `letters`: which layers of a model with Mamba-2 have experts. Throws
// Error(kData) with the argument.
void set_experts(const ArgumentValues& arguments, const std::vector<std::int64_t>& empty_layers,
                 const StateSpaceOptions& letters, ModelConfig& model);

}  // namespace piton
