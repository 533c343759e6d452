// Memory layouts of queries, keys and values, as views for the calls of attention.h. Those take [b,
// s, heads, d] with any strides except for the last dim, so nothing is copied, and results have the
// same bits in every layout.
//
//   SBH   [s, b, heads * d]       Megatron-LM's activations
//   BSH   [b, s, heads * d]       Piton's (nn/attention.h)
//   BSND  [b, s, heads, d]
//   BNSD  [b, heads, s, d]
//   TND   [t, heads, d]           packed: samples of any lengths, one after the other
#pragma once

#include <span>
#include <vector>

#include "tensor/tensor.h"

namespace piton {

enum class AttentionLayout : std::uint8_t { kSbh, kBsh, kBsnd, kBnsd, kTnd };

// The shape of [b, s, heads, d] in `layout`; TND has t = b * s.
Shape attention_shape(AttentionLayout layout, std::int64_t b, std::int64_t s, std::int64_t heads,
                      std::int64_t d);

// A view of `tensor`, which has `layout`, as [b, s, heads, d]. TND becomes one sample [1, t, heads,
// d]; packed_segments() gives the mask that separates its documents.
Tensor attention_view(const Tensor& tensor, AttentionLayout layout, std::int64_t heads);

// The segment of each of the t rows of TND: query_segments and key_segments [1, t] of
// AttentionMask. `cumulative`: 0, then the end of each sample, the last one t; samples may be
// empty. Causal masks, windows and slopes depend only on distances, so they stay correct within a
// sample.
std::vector<std::int32_t> packed_segments(std::span<const std::int64_t> cumulative);

}  // namespace piton
