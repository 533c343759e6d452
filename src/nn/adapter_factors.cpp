#include "nn/adapter_factors.h"

#include <cmath>

#include "nn/adapters.h"

namespace piton {

Initialization initial_adapter_a(std::int64_t in) {
  return {.kind = Initialization::Kind::kUniform, .bound = 1 / std::sqrt(static_cast<double>(in))};
}

std::string adapter_a_of(const std::string& name) { return name + std::string(kAdapterA); }
std::string adapter_b_of(const std::string& name) { return name + std::string(kAdapterB); }
std::string adapter_magnitude_of(const std::string& name) {
  return name + std::string(kAdapterMagnitude);
}

Parameter shared_adapter_factor(const Shard& shard, const std::string& name, std::int64_t out,
                                std::int64_t in, const Initialization& initialization) {
  Parameter parameter = replicated_parameter(shard, name, out, in, initialization);
  parameter.placement[Axis::kTensor].gradient_is_partial = shard.size() > 1;
  return parameter;
}

}  // namespace piton
