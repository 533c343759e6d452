#include "kernels/attention_layout.h"

namespace piton {

Shape attention_shape(AttentionLayout layout, std::int64_t b, std::int64_t s, std::int64_t heads,
                      std::int64_t d) {
  switch (layout) {
    case AttentionLayout::kSbh:
      return {s, b, heads * d};
    case AttentionLayout::kBsh:
      return {b, s, heads * d};
    case AttentionLayout::kBsnd:
      return {b, s, heads, d};
    case AttentionLayout::kBnsd:
      return {b, heads, s, d};
    case AttentionLayout::kTnd:
      break;
  }
  return {b * s, heads, d};
}

Tensor attention_view(const Tensor& tensor, AttentionLayout layout, std::int64_t heads) {
  switch (layout) {
    case AttentionLayout::kSbh:
      return tensor.swap_dims(0, 1).split_dim(2, tensor.dim(2) / heads);
    case AttentionLayout::kBsh:
      return tensor.split_dim(2, tensor.dim(2) / heads);
    case AttentionLayout::kBsnd:
      return tensor;
    case AttentionLayout::kBnsd:
      return tensor.swap_dims(1, 2);
    case AttentionLayout::kTnd:
      break;
  }
  return tensor.split_dim(0, tensor.dim(0));
}

std::vector<std::int32_t> packed_segments(std::span<const std::int64_t> cumulative) {
  PITON_ASSERT(!cumulative.empty() && cumulative[0] == 0, "cumulative lengths begin with 0");
  std::vector<std::int32_t> segments;
  segments.reserve(static_cast<std::size_t>(cumulative.back()));
  for (std::size_t sample = 1; sample < cumulative.size(); ++sample) {
    PITON_ASSERT(cumulative[sample] >= cumulative[sample - 1],
                 "sample {} of a packed row has {} rows", sample - 1,
                 cumulative[sample] - cumulative[sample - 1]);
    segments.resize(static_cast<std::size_t>(cumulative[sample]),
                    static_cast<std::int32_t>(sample - 1));
  }
  return segments;
}

}  // namespace piton
