// A table of 16 words by look-ups of bytes (codes_loops.h); included after the words of a set.
#pragma once

#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {

PITON_INLINE float add_lanes(F x) { return sum_lanes(x); }

// The low and the high halves of words.
struct ByteTables {
  explicit ByteTables(const std::int16_t* t) {
    alignas(16) std::uint8_t bytes[2][16];
    for (int i = 0; i < 16; ++i) {
      bytes[0][i] = static_cast<std::uint8_t>(t[i] & 255);
      bytes[1][i] = static_cast<std::uint8_t>(static_cast<std::uint16_t>(t[i]) >> 8);
    }
    low = repeated(bytes[0]);
    high = repeated(bytes[1]);
  }
  // A byte whose top bit is set picks 0.
  W of(W x) const {
    const W code = x & all_words(15);
    return pick_bytes(low, code | all_words(0x8000)) |
           pick_bytes(high, raised(code) | all_words(0x80));
  }
  W low, high;
};
using WordTable = ByteTables;

}  // namespace piton::cpu::PITON_ISA
