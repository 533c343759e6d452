#include "kernels/cpu/attention/attention_bf16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace piton::cpu {
namespace {

constexpr float kLn2 = 0.69314718F;

}  // namespace

void copy_rows(const HeadRows& head, std::int64_t begin, std::int64_t rows, std::int64_t d,
               std::uint16_t* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * stride, head.row(begin + r), static_cast<std::size_t>(d) * 2);
    std::fill_n(to + r * stride + d, stride - d, std::uint16_t{0});
  }
}

const float* factors(const CpuContext& context, const Masks& masks, const Sight& sight,
                     std::int64_t batch, std::int64_t head, std::int64_t query,
                     std::int64_t queries, std::int64_t key, float* tile) {
  if (!masks.given()) return nullptr;
  std::fill_n(tile, queries * kKeyBlock, 1.0F);
  for (std::int64_t r = 0; r < queries; ++r) {
    const MaskRow row = masks.query(batch, head, sight.position(query + r));
    context.vector.mask(tile + r * kKeyBlock, row, sight.first_position() + key, kKeyBlock);
  }
  return tile;
}

Seen seen_of(const Sight& sight, std::int64_t query, std::int64_t queries, std::int64_t key,
             std::int64_t row_unit, std::int64_t column_unit) {
  Seen seen;
  while (seen.skip < queries && sight.high()[query + seen.skip] <= key) ++seen.skip;
  seen.skip = seen.skip / row_unit * row_unit;
  const std::int64_t last = sight.range(query, query + queries).last - key;
  seen.columns = padded(std::min(kKeyBlock, last), column_unit);
  seen.valid = std::min(seen.columns, sight.keys() - key);
  return seen;
}

void bring(const HeadRows& head, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::byte* from = head.row(row);
    for (std::int64_t at = 0; at < head.channels * head.width; at += kLine)
      __builtin_prefetch(from + at);
  }
}

float slope_of(const AttentionMask& mask, std::int64_t head) {
  return mask.slopes.defined() ? mask.slopes.data<float>()[head] : 0.0F;
}

void finish(const CpuContext& context, const AttentionForward& call, std::int64_t batch,
            std::int64_t head, std::int64_t begin, std::int64_t rows, std::int64_t d,
            std::int64_t stride, float* out, const float* bases, const float* sums) {
  const float lowest = -std::numeric_limits<float>::infinity();
  const HeadRows to(call.out, batch, head);
  float* lse = lse_of(call, batch, head, begin);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = out + r * stride;
    const float* lanes = sums + r * kSoftmaxLanes;
    const float sum = std::accumulate(lanes, lanes + kSoftmaxLanes, 0.0F);
    const bool sees = bases[r] != lowest || sum != 0;
    const float inverse = sees ? 1.0F / sum : 0.0F;
    for (std::int64_t c = 0; c < d; ++c) row[c] *= inverse;
    context.vector.convert(to.row(begin + r), to.type, row, Type::kF32, d);
    if (lse != nullptr) lse[r] = sees ? kLn2 * bases[r] + std::log(sum) : lowest;
  }
}

}  // namespace piton::cpu
