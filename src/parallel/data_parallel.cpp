#include "parallel/data_parallel.h"

#include "base/error.h"
#include "parallel/zero_stages.h"

namespace piton {

void ShardedParameters::set_value(Parameter& parameter, const Tensor& rows, Stream& stream) {
  PITON_ASSERT(rows.shape() == parameter.shape, "{} is {}, got {}", parameter.name,
               to_string(parameter.shape), to_string(rows.shape()));
  const OwnValues own = own_values(parameter);
  if (!own.values.defined()) return;
  const Tensor part = rows.flatten().slice(0, own.offset, own.values.elements());
  kernels_.run(Copy{.dst = own.values, .src = part}, stream);
}

std::unique_ptr<ShardedParameters> ShardedParameters::make(int zero_stage,
                                                           std::vector<Parameter*> parameters,
                                                           Mesh& mesh,
                                                           const ComputeContext& compute,
                                                           ShardingRules rules) {
  const auto& [kernels, device, arena, stream] = compute;
  ShardingSetup setup{.groups = make_reduction_groups(parameters, mesh, rules.instances),
                      .kernels = kernels,
                      .device = device,
                      .arena = arena,
                      .cut = rules.cut,
                      .frozen_forms = rules.frozen_forms};
  for (Parameter* parameter : parameters) {
    if (parameter->codes.given()) continue;  // neither sharded nor trained
    (parameter->trainable ? setup.trainable : setup.frozen).push_back(parameter);
  }
  PITON_ASSERT(zero_stage > 0 || rules.instances == 1, "instances of what is not sharded");
  switch (zero_stage) {
    case 0:
      return make_replicated(std::move(setup), stream);
    case 1:
      return make_zero1(std::move(setup), stream);
    case 2:
      return make_zero2(std::move(setup), stream);
    case 3:
      return make_zero3(std::move(setup), stream);
  }
  throw Error(Fault::kUsage, "parallel: got ZeRO stage {}, wanted 0 to 3", zero_stage);
}

}  // namespace piton
