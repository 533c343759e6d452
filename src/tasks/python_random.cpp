#include "tasks/python_random.h"

#include <bit>
#include <numeric>
#include <set>

#include "base/error.h"

namespace piton {

// init_by_array() of one word (Matsumoto and Nishimura, mt19937ar.c).
PythonRandom::PythonRandom(std::uint32_t seed) {
  state_[0] = 19650218U;
  for (std::uint32_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  int i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (int k = 0; k < kWords; ++k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525U)) + seed;
    advance();
  }
  for (int k = 1; k < kWords; ++k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941U)) -
                static_cast<std::uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000U;
}

std::uint32_t PythonRandom::next32() {
  if (next_ == kWords) {
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t mixed =
          (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7FFFFFFFU);
      state_[i] =
          state_[(i + 397) % kWords] ^ (mixed >> 1) ^ ((mixed & 1U) != 0 ? 0x9908B0DFU : 0U);
    }
    next_ = 0;
  }
  std::uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680U;
  y ^= (y << 15) & 0xEFC60000U;
  return y ^ (y >> 18);
}

std::int64_t PythonRandom::below(std::int64_t limit) {
  const int bits = std::bit_width(static_cast<std::uint32_t>(limit));
  while (true) {
    const std::int64_t drawn = next32() >> (32 - bits);
    if (drawn < limit) return drawn;
  }
}

void PythonRandom::shuffle(std::span<std::int64_t> list) {
  for (std::size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
}

std::vector<std::int64_t> PythonRandom::sample(std::int64_t population, std::int64_t count) {
  PITON_ASSERT(count >= 0 && count <= population, "sample of {} of {}", count, population);
  // The size from which a set of what was drawn is smaller than a copy of the population:
  // 21, plus 4 to the power ceil(log4(3 count)) for more than 5.
  std::int64_t set_size = 21;
  if (count > 5) {
    std::int64_t power = 1;
    while (power < 3 * count) power *= 4;
    set_size += power;
  }
  std::vector<std::int64_t> drawn;
  if (population <= set_size) {
    std::vector<std::int64_t> pool(static_cast<std::size_t>(population));
    std::iota(pool.begin(), pool.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(below(population - i));
      drawn.push_back(pool[at]);
      pool[at] = pool[static_cast<std::size_t>(population - i - 1)];
    }
    return drawn;
  }
  std::set<std::int64_t> selected;
  while (std::ssize(drawn) < count) {
    const std::int64_t one = below(population);
    if (selected.insert(one).second) drawn.push_back(one);
  }
  return drawn;
}

}  // namespace piton
