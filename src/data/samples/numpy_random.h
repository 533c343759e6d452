// NumPy's legacy generator (numpy.random.RandomState): MT19937 (Matsumoto & Nishimura 1998), seeded
// by Knuth's recurrence, with bounded integers by masked rejection. Corpus orders are drawn from
// it, so that they equal Megatron's to the bit; nothing else in Piton uses it.
//
//   NumpyRandom random(1234);
//   random.shuffle(std::span(order));     // numpy.random.RandomState(1234).shuffle(order)
#pragma once

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
  // only on the length.
  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[interval(i)]);
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
