// Layers of Mamba-2 that arguments of a Megatron run describe.
#pragma once

#include <cstdint>

#include "megatron/format/argument_values.h"
#include "model/config.h"

namespace piton {

// Rows that convolutions of Megatron-core's Mamba-2 read. MindSpeed has an argument for others.
inline constexpr std::int64_t kMegatronFilterWidth = 4;

// The letters and sizes of a model of MambaModel; nothing given: it is of GPTModel.
StateSpaceOptions state_space_options(const ArgumentValues& arguments);

// Sets the layers and Mamba-2 of `model`, whose width is known and whose layers are letters yet.
// Throws Error(kData) with the argument.
void set_state_space(const ArgumentValues& arguments, const StateSpaceOptions& options,
                     ModelConfig& model);

}  // namespace piton
