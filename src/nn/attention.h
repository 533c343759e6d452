// Multi-head attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245), split by heads
// over the tensor ranks: a fused query-key-value projection, attention, the output projection, and
// the end of the residual branch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention.h"
#include "ops/rotary.h"

namespace piton {

struct AttentionShape {
  std::int64_t hidden = 0;     // h
  std::int64_t heads = 0;      // a
  std::int64_t groups = 0;     // key-value heads
  std::int64_t head_size = 0;  // d
  bool biases = false;         // of the output projection
  bool qkv_biases = false;     // of query, key and value
  bool head_norms = false;     // RMS norms of each head of query and key, before rotary
  double norm_eps = 1e-5;      // of those
  Rotary::Convention rotary = Rotary::Convention::kHalves;
  std::optional<std::int64_t> window_before;  // kernels/attention.h, AttentionMask
  std::optional<std::int64_t> window_after;
  std::int64_t block_rows = 0;  // the same, AttentionForward; with a cache always 0
};

// What each head adds to a score for each token of distance, of all `heads` heads (Press et al.
// 2022, arXiv:2108.12409): 2^(-8 k / heads), k = 1 .. heads, where heads is a power of two; else
// those of the next lower power c, then every second of the 2 c heads' from the first on.
std::vector<float> alibi_slopes(std::int64_t heads);

// What attention knows of the micro-batch: its rows are whole, whatever the residual stream is.
struct AttentionInput {
  std::int64_t batch = 1;
  AttentionPlaces places;          // without a cache
  RotarySettings rotary;           // tables and positions; the convention is the shape's
  Tensor slopes;                   // fp32 [a/t] of this rank's heads, or empty: ALiBi
  std::optional<CacheView> cache;  // of this layer: places are its rows
};

class Attention {
 public:
  Attention(ParameterList& parameters, const Shard& shard, const std::string& name,
            const AttentionShape& shape, Initialization input, Initialization output,
            double attention_dropout, double hidden_dropout);
  // residual + dropout(attention(x) + bias).
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

 private:
  Shard shard_;
  AttentionShape shape_;
  std::string attention_site_;
  std::string output_site_;
  double attention_dropout_;
  double hidden_dropout_;
  ColumnLinear qkv_;
  std::optional<Norm> query_norm_;
  std::optional<Norm> key_norm_;
  RowLinear output_;
};

}  // namespace piton
