// Attention to a cache in pages: the tiles of attention.cu, so that the bits are the same. Few
// queries have other kernels (cached_chunks.cu).
#include "kernels/cuda/attention/cached_chunks.h"
#include "kernels/cuda/attention/cached_grid.cuh"
#include "kernels/cuda/attention/latents.h"
#include "kernels/cuda/calls.h"

namespace piton::cuda {
namespace {

// A block: a tile of the rows of one sample, and a head. The host does not know how many tiles the
// samples have, so it starts as many blocks as there may be; those that are not needed return.
template <typename T, int kChannels, bool kCoded>
__global__ void __launch_bounds__((ForwardShape<T, kChannels>::kThreads), kBlocks)
    cached_attention(CachedGrid<T, kCoded> grid) {
  constexpr int kTile = ForwardShape<T, kChannels>::kTile;
  std::int64_t tile_index = blockIdx.x;
  std::int64_t sample = 0;
  std::int64_t rows = 0;
  for (; sample < grid.samples; ++sample) {
    rows = grid.rows_of(sample);
    const std::int64_t tiles = (rows + kTile - 1) / kTile;
    if (tile_index < tiles) break;
    tile_index -= tiles;
  }
  if (sample == grid.samples) return;
  const std::int64_t head = blockIdx.y;
  const std::int64_t key_head = head / grid.heads_per_key;
  const std::int64_t first = tile_index * kTile;
  const std::int64_t at = grid.begins[sample] + first;
  const KeySight sight = grid.sight_of_sample(sample);
  const std::int64_t left = rows - first;
  const QueryTile<T> tile{
      .q = grid.q + at * grid.q_stride + head * grid.q_head_stride,
      .q_stride = grid.q_stride,
      .out = grid.out + at * grid.out_stride + head * grid.out_head_stride,
      .out_stride = grid.out_stride,
      .lse = grid.lse == nullptr ? nullptr : grid.lse + head * grid.lse_rows + at,
      .sample = 0,
      .head = head,
      .first = first,
      .count = static_cast<int>(left < kTile ? left : kTile),
      .d = grid.d,
      .vectors = grid.vectors};
  const std::int32_t* table = grid.table + sample * grid.pages;
  attend_in_shape<T, kChannels>(
      tile, sight, grid.rules,
      [&](std::int64_t key) {
        return grid.keys.row(table[key / kCachePage], key % kCachePage, key_head);
      },
      [&](std::int64_t key) {
        return grid.values.row(table[key / kCachePage], key % kCachePage, key_head);
      });
}

template <typename T, int kChannels, bool kCoded>
void launch_cached(const CachedAttention& call, cudaStream_t stream) {
  using Shape = ForwardShape<T, kChannels>;
  const std::int64_t heads = call.q.dim(1);
  const std::int64_t samples = call.lengths.elements();
  launch("launch of cached attention", cached_attention<T, kChannels, kCoded>,
         {.blocks = {static_cast<unsigned>(call.q.dim(0) / Shape::kTile + samples),
                     static_cast<unsigned>(heads), 1},
          .threads = Shape::kThreads,
          .shared_bytes = Shape::shared_bytes()},
         cached_grid<T, kCoded>(call), stream);
}

}  // namespace

void execute(const CachedAttention& call, const CallContext& context) {
  if (call.q.elements() == 0) return;
  if (call.of_latents()) return attend_to_latents(call, context);
  if (has_few_queries(call)) return attend_in_chunks(call, context);
  with_heads(call.q.dtype(), call.q.dim(2),
             [&]<typename T, int kChannels>(std::type_identity<T>,
                                            std::integral_constant<int, kChannels>) {
               if (call.key_scales.defined()) {
                 launch_cached<T, kChannels, true>(call, context.stream);
               } else {
                 launch_cached<T, kChannels, false>(call, context.stream);
               }
             });
}

}  // namespace piton::cuda
