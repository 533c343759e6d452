// Multi-head attention with grouped queries (Ainslie et al. 2023, arXiv:2305.13245): a fused
// query-key-value projection, attention, the output projection, then bias, dropout and residual.
// Each tensor rank has a/t of the heads.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "ops/attention.h"
#include "ops/context/context_attention.h"
#include "ops/recurrent/delta_rule.h"
#include "ops/rotary.h"

namespace piton {

// The softmax of attention, by Megatron-core's names: of the keys alone; with one more logit of 0;
// or with one that each head learns (kernels/attention_sink.h).
enum class SoftmaxKind : std::uint8_t { kVanilla, kOffByOne, kLearnable };

struct AttentionShape {
  std::int64_t hidden = 0;     // h
  std::int64_t heads = 0;      // a
  std::int64_t groups = 0;     // g, key-value heads
  std::int64_t head_size = 0;  // d
  bool output_bias = false;    // of the output projection
  bool qkv_biases = false;     // of query, key and value
  // What the heads give is multiplied by the sigmoid of a gate of each channel, a fourth part of
  // the projection (Qiu et al. 2025, arXiv:2505.06708).
  bool output_gate = false;
  // RMS norms of each head of query and key, before rotary or after it; its width is head_size.
  std::optional<NormShape> head_norm;
  bool joint_norms = false;  // then one of all heads of query, and one of all of key
  bool norms_after_rotary = false;
  std::optional<NormShape> end_norm;  // of the output projection
  double output_factor = 1;           // of the output projection, after its norm
  double scale = 0;                   // of scores; 0: 1 / sqrt(d)
  double soft_cap = 0;                // of scores (kernels/attention.h); 0: none
  SoftmaxKind softmax = SoftmaxKind::kVanilla;
  Rotary::Convention rotary = Rotary::Convention::kHalves;
  bool causal = true;  // kernels/attention.h, AttentionMask
  std::optional<std::int64_t> window_before;
  std::optional<std::int64_t> window_after;
  std::int64_t block_rows = 0;   // kernels/attention.h, AttentionForward; ignored with a cache
  double attention_dropout = 0;  // probability
  double hidden_dropout = 0;     // probability
  const Adapters* adapters = nullptr;  // of the projections; read by the constructor; null: none
};

// ALiBi slopes of all heads [heads]: what a head adds to a score for each token of distance (Press
// et al. 2022, arXiv:2108.12409). If heads is a power of two: 2^(-8 k / heads), k = 1 .. heads.
// Otherwise, with c the next lower power of two: the slopes for c heads, then the 1st, 3rd, 5th,
// ... of the slopes for 2 c heads.
std::vector<float> alibi_slopes(std::int64_t heads);

// The inputs of attention in addition to x. They describe whole samples, also under sequence
// parallelism.
struct AttentionInput {
  std::int64_t batch = 1;          // b; ignored with a cache
  AttentionPlaces places;          // ignored with a cache
  ContextPlaces of_ranks;          // in place of it, if rows are divided over context ranks
  RotarySettings rotary;           // tables and positions; AttentionShape has the convention
  RotarySettings query_rotary;     // of queries, if their tables are others; else empty
  Tensor slopes;                   // fp32 [a/t]: ALiBi slopes of this rank's heads, or empty
  DistanceBias bias;               // of this rank's heads, or empty
  std::optional<CacheView> cache;  // of this layer; x has the rows of its pass
  StateView states;                // of a layer that has states, in its place
  bool recompute = false;          // AttentionSettings::recompute
};

// Where attention draws its dropout, and which heads this rank has.
struct AttentionSite {
  const Shard& shard;
  const AttentionShape& shape;
  const std::string& name;     // of the site
  Parameter* sinks = nullptr;  // of this rank's heads, if they are learned
};

// How the heads of this rank attend.
AttentionSettings attention_settings(const Context& context, const AttentionSite& site,
                                     const AttentionInput& input);

// The attention of this rank's rows [n, heads, d] to all that they see: of their samples, of a
// cache, which gets their keys and values, or of the rows of other context ranks. -> [n, a/t * d].
// Queries and keys are rotated already, or by `turn` if attention is to a cache.
Value attend_by(Context& context, const AttentionSite& site, const AttentionRows& rows,
                const AttentionInput& input, const RotarySettings& turn = {});

class Attention {
 public:
  // Learned sinks are the canonical tensor NAME.sinks [a].
  Attention(ParameterList& parameters, const Shard& shard, const std::string& name,
            const AttentionShape& shape, const BranchInitialization& initialization);
  // residual + dropout(attention(x) + bias). x, residual and the result: [b*s, h], under sequence
  // parallelism this rank's [b*s/t, h].
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

 private:
  Shard shard_;
  AttentionShape shape_;
  std::string attention_site_;
  std::string output_site_;
  ColumnLinear qkv_;
  std::optional<Norm> query_norm_;
  std::optional<Norm> key_norm_;
  RowLinear output_;
  Parameter* sinks_ = nullptr;  // [a/t]
};

}  // namespace piton
