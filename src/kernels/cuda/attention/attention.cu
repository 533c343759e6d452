// Attention in tiles of queries and keys, on tensor cores where they have the type.
#include "kernels/cuda/attention/attention_tensor.cuh"
#include "kernels/cuda/calls.h"

namespace piton::cuda {
namespace {

template <typename T>
struct ForwardGrid {
  HeadMatrix<T> out;
  float* lse;  // [b, a, sq]
  HeadMatrix<const T> q;
  HeadMatrix<const T> k;
  HeadMatrix<const T> v;
  KeySight sight;
  ScoreRules rules;
  std::int64_t heads_per_key;
  std::int64_t d;
  bool vectors;  // in_vectors(), of q, k and v
};

// A block: a tile of queries, a head, a sample. Under a causal mask the last tile sees the most
// keys, so it is the first to start.
template <typename T, int kChannels, bool kPlain>
__global__ void __launch_bounds__((ForwardShape<T, kChannels>::kThreads), kBlocks)
    attention_forward(ForwardGrid<T> grid) {
  constexpr int kTile = ForwardShape<T, kChannels>::kTile;
  const std::int64_t first = std::int64_t{gridDim.x - 1 - blockIdx.x} * kTile;
  const std::int64_t head = blockIdx.y;
  const std::int64_t sample = blockIdx.z;
  const std::int64_t key_head = head / grid.heads_per_key;
  const std::int64_t queries = grid.sight.queries;
  const std::int64_t left = queries - first;
  const QueryTile<T> tile{.q = grid.q.row(sample, first, head),
                          .q_stride = grid.q.row_stride,
                          .out = grid.out.row(sample, first, head),
                          .out_stride = grid.out.row_stride,
                          .lse = grid.lse + (sample * gridDim.y + head) * queries + first,
                          .sample = sample,
                          .head = head,
                          .first = first,
                          .count = static_cast<int>(left < kTile ? left : kTile),
                          .d = grid.d,
                          .vectors = grid.vectors};
  attend_in_shape<T, kChannels, kPlain>(
      tile, grid.sight, grid.rules,
      [&](std::int64_t key) { return grid.k.row(sample, key, key_head); },
      [&](std::int64_t key) { return grid.v.row(sample, key, key_head); });
}

}  // namespace

void execute(const AttentionForward& call, const CallContext& context) {
  const std::int64_t samples = call.q.dim(0);
  const std::int64_t queries = call.q.dim(1);
  const std::int64_t heads = call.q.dim(2);
  const std::int64_t d = call.q.dim(3);
  if (call.q.elements() == 0) return;
  with_heads(call.q.dtype(), d,
             [&]<typename T, int kChannels>(std::type_identity<T>,
                                            std::integral_constant<int, kChannels>) {
               using Shape = ForwardShape<T, kChannels>;
               const ForwardGrid<T> grid{
                   .out = head_matrix<T>(call.out),
                   .lse = pointer<float>(call.lse),
                   .q = head_matrix<const T>(call.q),
                   .k = head_matrix<const T>(call.k),
                   .v = head_matrix<const T>(call.v),
                   .sight = sight_of(call.mask, queries, call.k.dim(1)),
                   .rules = {.scale = static_cast<float>(call.scale),
                             .cap = static_cast<float>(call.soft_cap),
                             .site = mask_site(call.dropout),
                             .head_begin = call.head_begin},
                   .heads_per_key = heads / call.k.dim(2),
                   .d = d,
                   .vectors = in_vectors(call.q) && in_vectors(call.k) && in_vectors(call.v)};
               void (*kernel)(ForwardGrid<T>) = attention_forward<T, kChannels, false>;
               if constexpr (Shape::kOnTensorCores) {
                 if (has_plain_scores(grid.sight, grid.rules) && !grid.rules.site.draws)
                   kernel = attention_forward<T, kChannels, true>;
               }
               launch(
                   "launch of attention forward", kernel,
                   {.blocks = {static_cast<unsigned>((queries + Shape::kTile - 1) / Shape::kTile),
                               static_cast<unsigned>(heads), static_cast<unsigned>(samples)},
                    .threads = Shape::kThreads,
                    .shared_bytes = Shape::shared_bytes()},
                   grid, context.stream);
             });
}

}  // namespace piton::cuda
