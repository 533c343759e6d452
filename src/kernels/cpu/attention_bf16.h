// What the two ways to compute attention in bf16 share, beside attention_tiles.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention_tiles.h"

namespace piton::cpu {

// Rows of a head as bf16, `stride` elements apart, with zeros from d on.
void copy_rows(const Head& head, std::int64_t begin, std::int64_t rows, std::int64_t d,
               std::uint16_t* to, std::int64_t stride);

// Dropout factors of one tile [queries, kKeyBlock]; null where there is no dropout.
const float* factors(const Context& context, const Masks& masks, const Sight& sight,
                     std::int64_t batch, std::int64_t head, std::int64_t query,
                     std::int64_t queries, std::int64_t key, float* tile);

// The part of a tile that any query of it sees: rows from `skip` on, a multiple of `row_unit`, and
// columns below `columns`, a multiple of `column_unit`.
struct Seen {
  std::int64_t skip = 0;
  std::int64_t columns = 0;
  std::int64_t valid = 0;  // of the columns, keys that exist
};
Seen seen_of(const Sight& sight, std::int64_t query, std::int64_t queries, std::int64_t key,
             std::int64_t row_unit, std::int64_t column_unit);

float slope_of(const AttentionMask& mask, std::int64_t head);

// Of `rows` bases and sums of a softmax (dot/table.h), with room for alignment.
inline std::int64_t softmax_bytes(std::int64_t rows) {
  return rows * (1 + kSoftmaxLanes) * std::int64_t{sizeof(float)} + 2 * 64;
}

// Rows of `out` [rows, stride] divided by their sums, and their log-sum-exp, to the call's tensors.
void finish(const Context& context, const AttentionForward& call, std::int64_t batch,
            std::int64_t head, std::int64_t begin, std::int64_t rows, std::int64_t d,
            std::int64_t stride, float* out, const float* bases, const float* sums);

}  // namespace piton::cpu
