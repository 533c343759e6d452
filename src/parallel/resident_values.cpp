#include "base/error.h"
#include "parallel/zero_stages.h"

namespace piton {

ResidentValues::ResidentValues(ShardingSetup setup, int shards, Stream& stream)
    : setup_(std::move(setup)),
      layout_(make_flat_layout(setup_.trainable, shards)),
      frozen_layout_(make_flat_layout(setup_.frozen, 1)),
      values_(layout_, setup_.device, setup_.arena, stream),
      frozen_values_(frozen_layout_, setup_.device, setup_.arena, stream),
      forms_(setup_.kernels, setup_.arena) {}

WeightUse ResidentValues::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  return {forms_.get(parameter, parameter.value, form, stream), nullptr};
}

Tensor ResidentValues::whole_value(Parameter& parameter, Stream& /*stream*/) {
  return parameter.value;
}

void ResidentValues::set_value(Parameter& parameter, const Tensor& rows, Stream& stream) {
  PITON_ASSERT(rows.shape() == parameter.shape, "{} is {}, got {}", parameter.name,
               to_string(parameter.shape), to_string(rows.shape()));
  setup_.kernels.run(Copy{.dst = parameter.value, .src = rows}, stream);
}

void ResidentValues::publish_values(Stream& stream) {
  // With one shard there is nothing to gather: every rank has made the same update.
  if (layout_.shards.size() > 2) values_.gather_shards(*setup_.groups.data, setup_.arena, stream);
  for (const FlatLayout* layout : {&layout_, &frozen_layout_}) {
    for (const FlatEntry& entry : layout->entries) ++entry.parameter->version;
  }
}

}  // namespace piton
