// Attention to a cache: of each sample, by AttentionForward over its keys without pages.
#include "kernels/cached_attention.h"

#include "kernels/expect.h"
#include "kernels/reference/calls.h"
#include "kernels/reference/values.h"

namespace piton::reference {
namespace {

// Rows of a sample [1, keys, g, d], from the pages of row `sample` of the table.
Tensor without_pages(const Tensor& cache, const Values& table, std::int64_t sample,
                     std::int64_t keys) {
  Tensor rows = host_tensor(cache.dtype(), {1, keys, cache.dim(2), cache.dim(3)});
  for (std::int64_t key = 0; key < keys; ++key) {
    const auto page = static_cast<std::int64_t>(table(sample, key / kCachePage));
    Values::read(cache.select(0, page).select(0, key % kCachePage))
        .write(rows.select(0, 0).select(0, key));
  }
  return rows;
}

}  // namespace

void execute(const CacheAppend& call) {
  const Values slots = Values::read(call.slots);
  for (std::int64_t row = 0; row < call.rows.dim(0); ++row) {
    const auto slot = static_cast<std::int64_t>(slots(row));
    Values::read(call.rows.select(0, row))
        .write(call.cache.select(0, slot / kCachePage).select(0, slot % kCachePage));
  }
}

void execute(const CachedAttention& call) {
  const Values begins = Values::read(call.begins);
  const Values lengths = Values::read(call.lengths);
  const Values table = Values::read(call.table);
  for (std::int64_t sample = 0; sample < call.lengths.elements(); ++sample) {
    const auto begin = static_cast<std::int64_t>(begins(sample));
    const std::int64_t rows = static_cast<std::int64_t>(begins(sample + 1)) - begin;
    const auto keys = static_cast<std::int64_t>(lengths(sample));
    execute(
        AttentionForward{.out = call.out.slice(0, begin, rows).split_dim(0, rows),
                         .lse = host_tensor(sum_dtype(call.q.dtype()), {1, call.q.dim(1), rows}),
                         .q = call.q.slice(0, begin, rows).split_dim(0, rows),
                         .k = without_pages(call.keys, table, sample, keys),
                         .v = without_pages(call.values, table, sample, keys),
                         .mask = {.window_before = call.window_before,
                                  .window_after = call.window_after,
                                  .query_begin = keys - rows,
                                  .slopes = call.slopes,
                                  .bias = call.bias,
                                  .bias_origin = call.bias_origin},
                         .scale = call.scale,
                         .soft_cap = call.soft_cap});
  }
}

}  // namespace piton::reference
