#include "parallel/unit_values.h"

#include <map>

#include "base/error.h"

namespace piton {
namespace {

DType dtype_of_values(const ShardUnit& unit) { return unit.dtype; }

}  // namespace

std::vector<Tensor> allocate_units(const std::vector<ShardUnit>& units, const UnitTensor& tensor,
                                   Device& device, Arena& arena, Stream& stream) {
  const auto& [dtype_of, elements, kind] = tensor;
  std::map<DType, std::int64_t> sizes;
  for (const ShardUnit& unit : units) sizes[dtype_of(unit)] += elements(unit);
  std::map<DType, Tensor> buffers;
  for (const auto& [dtype, size] : sizes) {
    buffers[dtype] = arena.allocate(dtype, {size}, kind, stream);
    device.zero_new(buffers[dtype], stream);
  }
  std::map<DType, std::int64_t> next;
  std::vector<Tensor> tensors;
  for (const ShardUnit& unit : units) {
    std::int64_t& position = next[dtype_of(unit)];
    tensors.push_back(buffers.at(dtype_of(unit)).slice(0, position, elements(unit)));
    position += elements(unit);
  }
  return tensors;
}

WholeValues::WholeValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena,
                         Stream& stream)
    : units_(units),
      values_(allocate_units(units,
                             {.dtype = dtype_of_values,
                              .elements = [](const ShardUnit& unit) { return unit.size; },
                              .kind = MemoryKind::kParameters},
                             device, arena, stream)),
      gathered_(units.size()) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const UnitEntry& entry : units[u].entries) {
      unit_of_[entry.parameter] = u;
      entry.parameter->value =
          values_[u].slice(0, entry.begin, entry.size).reshape(entry.parameter->shape);
    }
  }
}

Tensor WholeValues::part(const ShardSpan& span) const {
  return values_[span.unit].slice(0, span.unit_begin, span.size);
}

WholeValues::~WholeValues() {
  for (const Event& event : gathered_) {
    try {
      event.wait();
    } catch (const Error&) {  // the run has failed; others report it
    }
  }
}

void WholeValues::gather_parts(Arena& arena, Stream& stream) {
  await_all(stream);
  // Units are in the order of backward, from the last layer to the first.
  for (std::size_t u = units_.size(); u-- > 0;) {
    const ShardUnit& unit = units_[u];
    const Tensor own = values_[u].slice(0, unit.own_begin(), unit.part_size());
    gathered_[u] = unit.group->values->all_gather(values_[u], own, stream);
    arena.hold(values_[u], gathered_[u].fence());
  }
}

void WholeValues::await(const Parameter& parameter, Stream& stream) {
  const auto found = unit_of_.find(&parameter);
  if (found != unit_of_.end()) stream.wait(gathered_[found->second]);
}

void WholeValues::await_all(Stream& stream) {
  for (const Event& event : gathered_) stream.wait(event);
}

void WholeValues::await(const Parameter& parameter) {
  const auto found = unit_of_.find(&parameter);
  if (found != unit_of_.end()) gathered_[found->second].wait();
}

ShardValues::ShardValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena,
                         Stream& stream)
    : units_(units),
      values_(allocate_units(units,
                             {.dtype = dtype_of_values,
                              .elements = [](const ShardUnit& unit) { return unit.part_size(); },
                              .kind = MemoryKind::kParameters},
                             device, arena, stream)) {}

Tensor ShardValues::part(const ShardSpan& span) const {
  return values_[span.unit].slice(0, span.unit_begin - units_[span.unit].own_begin(), span.size);
}

}  // namespace piton
