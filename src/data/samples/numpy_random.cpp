#include "data/samples/numpy_random.h"

#include <bit>
#include <cmath>
#include <numeric>

namespace piton {

NumpyRandom::NumpyRandom(std::uint32_t seed) {
  state_[0] = seed;
  for (std::uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
}

void NumpyRandom::refill() {
  const auto twist = [](std::uint32_t high, std::uint32_t low) {
    const std::uint32_t mixed = (high & 0x80000000U) | (low & 0x7FFFFFFFU);
    return (mixed >> 1) ^ ((low & 1U) != 0 ? 0x9908B0DFU : 0U);
  };
  constexpr int kShift = 397;
  for (int i = 0; i < kWords - kShift; ++i)
    state_[i] = state_[i + kShift] ^ twist(state_[i], state_[i + 1]);
  for (int i = kWords - kShift; i < kWords - 1; ++i) {
    state_[i] = state_[i + kShift - kWords] ^ twist(state_[i], state_[i + 1]);
  }
  state_[kWords - 1] = state_[kShift - 1] ^ twist(state_[kWords - 1], state_[0]);
  next_ = 0;
}

std::uint32_t NumpyRandom::next32() {
  if (next_ == kWords) refill();
  std::uint32_t word = state_[next_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9D2C5680U;
  word ^= (word << 15) & 0xEFC60000U;
  return word ^ (word >> 18);
}

std::uint64_t NumpyRandom::interval(std::uint64_t max) {
  if (max == 0) return 0;
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
  while (true) {
    std::uint64_t value = next32();
    if (max > 0xFFFFFFFFU) value = (value << 32) | next32();
    value &= mask;
    if (value <= max) return value;
  }
}

double NumpyRandom::uniform() {
  const std::uint32_t high = next32() >> 5;
  const std::uint32_t low = next32() >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;  // (high 2^26 + low) / 2^53
}

std::int64_t NumpyRandom::geometric(double p) {
  return static_cast<std::int64_t>(std::ceil(std::log1p(-uniform()) / std::log(1 - p)));
}

void NumpyRandom::torch_permutation(std::span<std::int64_t> values) {
  std::iota(values.begin(), values.end(), 0);
  const std::uint64_t n = values.size();
  // Above this length 32 bits would favor small remainders, so torch draws 64 bits.
  const bool wide = n >= 0xFFFFFFFFU / 20;
  for (std::uint64_t i = 0; i + 1 < n; ++i) {
    std::uint64_t draw = next32();
    if (wide) draw |= std::uint64_t{next32()} << 32;
    std::swap(values[i], values[i + draw % (n - i)]);
  }
}

}  // namespace piton
