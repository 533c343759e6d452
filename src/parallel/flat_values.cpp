#include "parallel/flat_values.h"

#include <algorithm>

namespace piton {
namespace {

std::int64_t round_up(std::int64_t value) {
  return (value + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

}  // namespace

WholeValues::WholeValues(const FlatLayout& layout, Device& device, Arena& arena, Stream& stream) {
  std::map<DType, std::int64_t> sizes;
  std::vector<std::int64_t> positions;
  for (const FlatEntry& entry : layout.entries) {
    std::int64_t& size = sizes[entry.parameter->dtype];
    positions.push_back(size);
    size += round_up(entry.size);
  }
  for (const auto& [dtype, size] : sizes) {
    Buffer& buffer = buffers_[dtype];
    buffer.flat = arena.allocate(dtype, {size}, MemoryKind::kParameters);
    device.zero_new(buffer.flat, stream);
    // A cut of the layout, seen in a buffer: inside the parameter that it cuts, or where the next
    // parameter of this dtype begins.
    for (const std::int64_t shard : layout.shards) {
      std::int64_t cut = size;
      for (std::size_t i = layout.entries.size(); i-- > 0;) {
        const FlatEntry& entry = layout.entries[i];
        if (entry.parameter->dtype != dtype) continue;
        if (shard >= entry.begin + entry.size) break;
        cut = positions[i] + std::max<std::int64_t>(0, shard - entry.begin);
      }
      buffer.cuts.push_back(cut);
    }
  }
  for (std::size_t i = 0; i < layout.entries.size(); ++i) {
    Parameter& parameter = *layout.entries[i].parameter;
    parameter.value = buffers_.at(parameter.dtype)
                          .flat.slice(0, positions[i], layout.entries[i].size)
                          .reshape(parameter.shape);
  }
}

Tensor WholeValues::part(const FlatSpan& span) const {
  return span.parameter->value.flatten().slice(0, span.parameter_offset, span.size);
}

void WholeValues::gather_shards(Communicator& data, Arena& arena, Stream& stream) {
  std::vector<Event> gathered;
  for (auto& [dtype, buffer] : buffers_) {
    gathered.push_back(data.all_gather_parts(buffer.flat, buffer.cuts, stream));
    arena.hold(buffer.flat, gathered.back().fence());
  }
  for (const Event& event : gathered) stream.wait(event);
}

ShardValues::ShardValues(const FlatLayout& layout, int rank, Device& device, Arena& arena,
                         Stream& stream) {
  const std::vector<FlatSpan> spans = spans_of_shard(layout, rank);
  std::map<DType, std::int64_t> sizes;
  for (const FlatSpan& span : spans) sizes[span.parameter->dtype] += round_up(span.size);
  std::map<DType, Tensor> buffers;
  for (const auto& [dtype, size] : sizes) {
    buffers[dtype] = arena.allocate(dtype, {size}, MemoryKind::kParameters);
    device.zero_new(buffers[dtype], stream);
  }
  std::map<DType, std::int64_t> next;
  for (const FlatSpan& span : spans) {
    std::int64_t& position = next[span.parameter->dtype];
    own_[span.parameter] = {buffers[span.parameter->dtype].slice(0, position, span.size),
                            span.parameter_offset};
    position += round_up(span.size);
  }
}

Tensor ShardValues::own(const Parameter& parameter) const {
  const auto found = own_.find(&parameter);
  return found == own_.end() ? Tensor() : found->second.values;
}

std::int64_t ShardValues::own_offset(const Parameter& parameter) const {
  const auto found = own_.find(&parameter);
  return found == own_.end() ? 0 : found->second.offset;
}

}  // namespace piton
