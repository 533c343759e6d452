// The names of tensors in Megatron-core's dist_checkpointing (megatron/distributed/torch_dist.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace piton {

// States of the optimizer and of the run, not weights.
bool is_state(std::string_view name);
// The name of the weight that this is the optimizer's `kind` of; "": none.
std::string weight_of_state(const std::string& name, std::string_view kind);
// The name of the weight that this is the fp32 copy of; "": none.
std::string weight_of_master(const std::string& name);
// The number of a stacked tensor's layer goes here; npos: it has none, or the name has it already.
std::size_t place_of_layer(std::string_view name);
// The usual name of a half of the first MLP matrix, which Megatron-core stores under another one;
// any other name as it is.
std::string plain_name(const std::string& name);

}  // namespace piton
