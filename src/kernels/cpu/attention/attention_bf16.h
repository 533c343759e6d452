// Shared by the two implementations of attention in bf16.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention/attention_tiles.h"

namespace piton::cpu {

// Copies rows of a head as bf16, `stride` elements apart, with zeros from d on.
void copy_rows(const HeadRows& head, std::int64_t begin, std::int64_t rows, std::int64_t d,
               std::uint16_t* to, std::int64_t stride);

// Dropout factors of one tile [queries, kKeyBlock]; null without dropout.
const float* factors(const CpuContext& context, const Masks& masks, const Sight& sight,
                     std::int64_t batch, std::int64_t head, std::int64_t query,
                     std::int64_t queries, std::int64_t key, float* tile);

// The part of a tile that any of its queries sees: rows from `skip` on, a multiple of `row_unit`,
// and columns below `columns`, a multiple of `column_unit`.
struct Seen {
  std::int64_t skip = 0;
  std::int64_t columns = 0;
  std::int64_t valid = 0;  // existing keys among the columns
};
Seen seen_of(const Sight& sight, std::int64_t query, std::int64_t queries, std::int64_t key,
             std::int64_t row_unit, std::int64_t column_unit);

// Prefetches keys or values that are packed soon: a head's rows fill only a few pages, too few for
// the hardware prefetcher.
void bring(const HeadRows& head, std::int64_t begin, std::int64_t end);

float slope_of(const AttentionMask& mask, std::int64_t head);

// Bytes for the bases and sums of a softmax of `rows` rows (dot/table.h), aligned.
inline std::int64_t softmax_bytes(std::int64_t rows) {
  return rows * (1 + kSoftmaxLanes) * std::int64_t{sizeof(float)} + 2 * 64;
}

// Divides rows of `out` [rows, stride] by their sums; writes them and their log-sum-exp to the
// call's tensors.
void finish(const CpuContext& context, const AttentionForward& call, std::int64_t batch,
            std::int64_t head, std::int64_t begin, std::int64_t rows, std::int64_t d,
            std::int64_t stride, float* out, const float* bases, const float* sums);

}  // namespace piton::cpu
