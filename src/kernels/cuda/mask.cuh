// Dropout masks in device code: the bits of base/random/philox.h. Internal to this folder.
#pragma once

#include <cuda_runtime.h>

#include "kernels/call.h"
#include "kernels/cuda/vector.cuh"

namespace piton::cuda {

struct MaskWords {
  std::uint32_t word[4];
};

// Ten rounds of Philox4x32.
__device__ inline MaskWords draw(PhiloxKey key, MaskWords counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key.low,
                static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key.high,
                static_cast<std::uint32_t>(a)}};
    key.low += 0x9E3779B9U;
    key.high += 0xBB67AE85U;
  }
  return counter;
}

// The masks of one site. Without dropout it draws nothing.
struct MaskSite {
  PhiloxKey key;
  std::uint32_t threshold = 0;
  bool draws = false;
  double kept = 1;                         // the factor of elements that are kept
  const std::int64_t* consumed = nullptr;  // on the device
  std::int64_t sample_index = 0;
  std::int64_t sequence = 1;
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t first_shift = 0;  // MaskRows::position
  std::int64_t second_shift = 0;

  // The words of columns 4 (column / 4) .. + 3.
  __device__ MaskWords words(std::int64_t sample, std::int64_t head, std::int64_t position,
                             std::int64_t column) const {
    const auto global = static_cast<std::uint64_t>(*consumed + sample_index + sample);
    return draw(key,
                {{static_cast<std::uint32_t>(global),
                  (static_cast<std::uint32_t>(global >> 32) << 16) |
                      (static_cast<std::uint32_t>(head) & 0xFFFFU),
                  static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(column) / 4}});
  }
  __device__ bool keeps(std::uint32_t word) const { return word >= threshold; }

  // call(i, word) for elements channel + i, i below kCount, of a row of a matrix [rows, channels].
  // Four columns share a draw.
  template <int kCount, typename Call>
  __device__ __forceinline__ void for_each_word(std::int64_t row, std::int64_t channel,
                                                Call call) const {
    const std::int64_t global = first_row + row;
    const std::int64_t sample = global / sequence;
    const std::int64_t place = global - sample * sequence;
    const std::int64_t position = place + (place < sequence / 2 ? first_shift : second_shift);
    const std::int64_t column = first_column + channel;
    if (kCount % 4 == 0 && column % 4 == 0) {
      for (int i = 0; i + 3 < kCount; i += 4) {
        const MaskWords drawn = words(sample, 0, position, column + i);
        for (int j = 0; j < 4; ++j) call(i + j, drawn.word[j]);
      }
      return;
    }
    MaskWords drawn = words(sample, 0, position, column);
    for (int i = 0; i < kCount; ++i) {
      const std::int64_t which = (column + i) % 4;
      if (i > 0 && which == 0) drawn = words(sample, 0, position, column + i);
      // No index: the words stay in registers.
      const std::uint32_t low = which == 0 ? drawn.word[0] : drawn.word[1];
      const std::uint32_t high = which == 2 ? drawn.word[2] : drawn.word[3];
      call(i, which < 2 ? low : high);
    }
  }

  // The factors of elements channel .. channel + kCount - 1 of such a row.
  template <typename S, int kCount>
  __device__ __forceinline__ Numbers<S, kCount> row_factors(std::int64_t row,
                                                            std::int64_t channel) const {
    Numbers<S, kCount> factors;
    for (S& factor : factors.at) factor = S{1};
    if (!draws) return factors;
    for_each_word<kCount>(row, channel, [&](int i, std::uint32_t word) {
      factors.at[i] = keeps(word) ? static_cast<S>(kept) : S{0};
    });
    return factors;
  }
};

// Of words alone.
inline MaskSite mask_site(PhiloxKey key, const MaskRows& rows) {
  return {.key = key,
          .consumed = rows.consumed_samples.data<std::int64_t>(),
          .sample_index = rows.sample_index,
          .sequence = rows.sequence,
          .first_row = rows.first_row,
          .first_column = rows.first_column,
          .first_shift = rows.first_shift,
          .second_shift = rows.second_shift};
}

inline MaskSite mask_site(const Dropout& dropout) {
  if (dropout.probability == 0) return {};
  MaskSite site = mask_site(dropout.key, dropout.rows);
  site.threshold = drop_threshold(dropout.probability);
  site.draws = true;
  site.kept = 1 / (1 - dropout.probability);
  return site;
}

}  // namespace piton::cuda
