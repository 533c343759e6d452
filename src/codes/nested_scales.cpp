#include "codes/nested_scales.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace piton {
namespace {

constexpr std::size_t kNestedBlock = 256;

std::array<float, 256> dynamic_map() {
  std::array<float, 256> map{};
  std::size_t count = 0;
  for (int i = 0; i < 7; ++i) {
    const int parts = 1 << i;
    const double factor = std::pow(10.0, i - 6);
    const auto edge = [&](int part) { return static_cast<float>(0.1 + 0.9 * part / parts); };
    for (int part = 0; part < parts; ++part) {
      const float middle = (edge(part) + edge(part + 1)) / 2;
      map[count++] = static_cast<float>(factor * middle);
      map[count++] = static_cast<float>(-factor * middle);
    }
  }
  map[count++] = 0;
  map[count++] = 1;
  std::ranges::sort(map);
  return map;
}

float nearest_in(const std::array<float, 256>& map, float x) {
  const auto above = std::ranges::lower_bound(map, x);
  if (above == map.begin()) return map.front();
  if (above == map.end()) return map.back();
  const float below = *(above - 1);
  return x - below <= *above - x ? below : *above;
}

}  // namespace

void nest_scales(std::span<float> scales) {
  if (scales.empty()) return;
  static const std::array<float, 256> kMap = dynamic_map();
  double sum = 0;
  for (const float scale : scales) sum += scale;
  const auto mean = static_cast<float>(sum / static_cast<double>(scales.size()));
  for (std::size_t begin = 0; begin < scales.size(); begin += kNestedBlock) {
    const std::span<float> block =
        scales.subspan(begin, std::min(kNestedBlock, scales.size() - begin));
    float largest = 0;
    for (float& scale : block) {
      scale -= mean;
      largest = std::max(largest, std::abs(scale));
    }
    for (float& scale : block) {
      scale = (largest > 0 ? nearest_in(kMap, scale / largest) * largest : 0) + mean;
    }
  }
}

}  // namespace piton
