// The tensors of adapters (nn/adapters.h) as parameters, for nn/linear.cpp and
// nn/expert_adapters.cpp.
#pragma once

#include <string>

#include "nn/shard.h"

namespace piton {

// PEFT's Kaiming initialization with a = sqrt 5.
Initialization initial_adapter_a(std::int64_t in);

// Names of the tensors of an adapter or of the adapter of a matrix.
std::string adapter_a_of(const std::string& name);
std::string adapter_b_of(const std::string& name);
std::string adapter_magnitude_of(const std::string& name);

// [out, in], whole on every tensor rank. Each has its share of the columns or rows of the other
// factor, so each has a summand of the gradient of this one.
Parameter shared_adapter_factor(const Shard& shard, const std::string& name, std::int64_t out,
                                std::int64_t in, const Initialization& initialization);

}  // namespace piton
