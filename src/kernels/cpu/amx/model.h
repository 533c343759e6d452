// The tile instructions in plain C++, for any machine. Tests compare the kernels' loop and the
// processor's own instructions with it: bit for bit, except for the payload of NaNs.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace piton::cpu {

class ModelTiles {
 public:
  template <int tile>
  void zero() {
    std::memset(tiles_[tile], 0, sizeof tiles_[tile]);
  }
  template <int tile>
  void load(const void* from, std::int64_t stride) {
    for (int row = 0; row < 16; ++row) {
      std::memcpy(tiles_[tile][row], static_cast<const char*>(from) + row * stride, 64);
    }
  }
  template <int tile>
  void store(void* to, std::int64_t stride) const {
    for (int row = 0; row < 16; ++row) {
      std::memcpy(static_cast<char*>(to) + row * stride, tiles_[tile][row], 64);
    }
  }
  // Tile `sums` += tile `left_tile` times tile `right_tile`.
  template <int sums, int left_tile, int right_tile>
  void dot() {
    const auto& left = tiles_[left_tile];
    const auto& right = tiles_[right_tile];
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 16; ++column) {
        float even = 0;
        float odd = 0;
        for (int pair = 0; pair < 16; ++pair) {
          even = multiply_add(low(left[row][pair]), low(right[pair][column]), even);
          odd = multiply_add(high(left[row][pair]), high(right[pair][column]), odd);
        }
        std::uint32_t& sum = tiles_[sums][row][column];
        const float both = flushed(even + odd);
        sum = bits(flushed(flushed(number(sum)) + both));
      }
    }
  }
  void bring(const void*) {}
  void fence() {}

 private:
  static float number(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  static std::uint32_t bits(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? x * 0 : x; }
  static float low(std::uint32_t pair) { return flushed(number(pair << 16)); }
  static float high(std::uint32_t pair) { return flushed(number(pair & 0xFFFF0000U)); }
  static float multiply_add(float a, float b, float sum) { return flushed(std::fma(a, b, sum)); }

  std::uint32_t tiles_[8][16][16] = {};
};

}  // namespace piton::cpu
