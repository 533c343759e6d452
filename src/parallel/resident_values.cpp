#include "base/error.h"
#include "parallel/bucketed_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {

ResidentValues::ResidentValues(ShardingSetup setup, bool sharded, Stream& stream)
    : ShardedParameters(setup.kernels),
      setup_(std::move(setup)),
      sharded_(sharded),
      units_(make_shard_units(setup_.trainable, setup_.groups,
                              {.bucket_bytes = kBucketBytes,
                               .sharded = sharded,
                               .cut = sharded ? setup_.cut : CutPolicy::kEven})),
      frozen_units_(make_shard_units(setup_.frozen, setup_.groups, {.sharded = false})),
      values_(units_, setup_.device, setup_.arena, stream),
      frozen_values_(frozen_units_, setup_.device, setup_.arena, stream),
      forms_(setup_.kernels, setup_.arena, setup_.frozen_forms) {
  own_.add(units_, values_);
  own_.add(frozen_units_, frozen_values_);
}

WeightUse ResidentValues::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  values_.await(parameter, stream);
  return {forms_.get(parameter, parameter.value, form, stream), nullptr};
}

Tensor ResidentValues::whole_value(Parameter& parameter, Stream& stream) {
  values_.await(parameter, stream);
  return parameter.value;
}

OwnValues ResidentValues::own_values(Parameter& parameter) {
  values_.await(parameter);
  ++parameter.version;
  return own_.of(parameter);
}

void ResidentValues::publish_values(Stream& stream) {
  // Without sharding, every rank has updated all values: there is nothing to gather. Else the
  // values of a layer are gathered while those before it are computed; acquire() waits for them.
  if (sharded_) values_.gather_parts(setup_.arena, stream);
  for (Parameter* parameter : setup_.trainable) ++parameter->version;
  setup_.arena.settle(stream);
}

}  // namespace piton
