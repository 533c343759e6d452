// Attention in tiles of queries and keys, on tensor cores where they have the type.
#include "kernels/cuda/attention/attention_tensor.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_attention.h"
#include "kernels/cuda/calls.h"

namespace piton::cuda {
namespace {

template <typename T, int kChannels, bool kPlain>
__global__ void __launch_bounds__((ForwardShape<T, kChannels>::kThreads), kBlocks)
    attention_forward(ForwardGrid<T> grid) {
  const QueryTile<T> tile = query_tile(grid, ForwardShape<T, kChannels>::kTile);
  const std::int64_t key_head = tile.head / grid.heads_per_key;
  attend_in_shape<T, kChannels, kPlain>(
      tile, grid.sight, grid.rules,
      [&](std::int64_t key) { return grid.k.row(tile.sample, key, key_head); },
      [&](std::int64_t key) { return grid.v.row(tile.sample, key, key_head); });
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
               const ForwardGrid<T> grid = forward_grid<T>(call);
               void (*kernel)(ForwardGrid<T>) = attention_forward<T, kChannels, false>;
               if constexpr (Shape::kOnTensorCores) {
                 if (has_plain_scores(grid.sight, grid.rules) && !grid.rules.site.draws) {
                   if (context.warpgroups && grid.vectors)
                     return launch_forward_of_groups<T, kChannels>(call, grid, context.stream);
                   kernel = attention_forward<T, kChannels, true>;
                 }
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
