// NumPy's legacy generator (numpy.random.RandomState): MT19937 (Matsumoto & Nishimura 1998), seeded
// by Knuth's recurrence, with bounded integers by masked rejection. Corpus orders are drawn from
// it, so that they equal Megatron's to the bit, and examples of MindSpeed-LLM's MMLU.
//
//   NumpyRandom random(1234);
//   random.shuffle(std::span(order));     // numpy.random.RandomState(1234).shuffle(order)
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace piton {

class NumpyRandom {
 public:
  explicit NumpyRandom(std::uint32_t seed);

  // The next 32 bits of the twister.
  std::uint32_t next32();

  // Uniform in 0..max inclusive: masks draws to the bits of `max` and repeats until one is not
  // above it. 32 bits per draw up to 2^32 - 1, 64 bits (high word first) beyond.
  std::uint64_t interval(std::uint64_t max);

  // RandomState.random(): uniform in [0, 1), a multiple of 2^-53.
  double uniform();

  // RandomState.geometric(p) for p < 1/3, by inversion: trials up to the first success.
  std::int64_t geometric(double p);

  // Fisher-Yates from the end, as RandomState.shuffle for a one-dimensional array. The draws depend
  // only on the length. So a block of them is made first, and its memory is requested: each value
  // of a large array is a cache miss, which would take ten times as long as its draw.
  template <typename T>
  void shuffle(std::span<T> values) {
    constexpr std::size_t kBlock = 64;  // lines of memory on their way at once
    std::array<std::size_t, kBlock> places;
    for (std::size_t left = values.size(); left > 1;) {
      const std::size_t count = std::min(kBlock, left - 1);
      for (std::size_t k = 0; k < count; ++k) {
        places[k] = interval(left - 1 - k);
        __builtin_prefetch(&values[places[k]], 1);
      }
      for (std::size_t k = 0; k < count; ++k) std::swap(values[--left], values[places[k]]);
    }
  }

  // torch.randperm(n, generator=torch.Generator().manual_seed(seed)) for this generator's seed:
  // Fisher-Yates from the front by remainder. Overwrites `values`.
  void torch_permutation(std::span<std::int64_t> values);

 private:
  static constexpr int kWords = 624;
  void refill();
  std::array<std::uint32_t, kWords> state_;
  int next_ = kWords;
};

}  // namespace piton
