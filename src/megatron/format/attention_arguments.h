// Positions and attention that arguments of a Megatron run describe.
#pragma once

#include "megatron/format/argument_values.h"
#include "model/config.h"

namespace piton {

// Sets positions and the kind of attention of `model`, whose sizes are known. Throws Error(kData)
// with the argument.
void set_attention(const ArgumentValues& arguments, ModelConfig& model);

}  // namespace piton
