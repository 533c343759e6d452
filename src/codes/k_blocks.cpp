#include "codes/k_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kMinGroup = 32;    // values with a scale and a minimum
constexpr std::int64_t kScaleGroup = 16;  // of q6_k
constexpr float kLeastMagnitude = 1e-15F;
// Larger values are beyond the largest scale: 65504 * 128 * 32 in q6_k. Their sums would overflow.
constexpr float kLargestValue = 3e8F;

// As ggml rounds: to nearest even below 2^22; else, and for NaN, what the bits give.
std::int32_t ggml_nearest(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x + 12582912.0F);  // 1.5 * 2^23
  return (bits & 0x007fffff) - 0x00400000;
}

struct Line {
  float scale = 0;
  float minimum = 0;  // as a magnitude
};

// Sums over a group for codes of one trial.
struct LineSums {
  float codes = 0;
  float squares = 0;
  float products = 0;
};

// The scale and the minimum of a group whose codes have the least weighted squared error, of 1 +
// `steps` trials (make_qkx2_quants).
class LineSearch {
 public:
  LineSearch(std::span<const float> x, std::int32_t most) : x_(x), most_(most) {
    float squares = 0;
    for (const float value : x) squares += value * value;
    const float size = std::sqrt(squares / static_cast<float>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) weights_[i] = size + std::abs(x[i]);
    low_ = high_ = x[0];
    weight_ = weights_[0];
    sum_ = weight_ * x[0];
    for (std::size_t i = 1; i < x.size(); ++i) {
      low_ = std::min(low_, x[i]);
      high_ = std::max(high_, x[i]);
      weight_ += weights_[i];
      sum_ += weights_[i] * x[i];
    }
    if (low_ > 0) low_ = 0;
  }

  Line run(float first, int steps, std::uint8_t* codes) {
    if (high_ == low_) {
      std::fill_n(codes, x_.size(), std::uint8_t{0});
      return {0, -low_};
    }
    float factor = static_cast<float>(most_) / (high_ - low_);
    Line best{1 / factor, low_};
    round(factor, codes);
    float least = error_of(best, codes);
    std::array<std::uint8_t, kMinGroup> trial{};
    for (int step = 0; step <= steps; ++step) {
      factor =
          (first + 0.1F * static_cast<float>(step) + static_cast<float>(most_)) / (high_ - low_);
      round(factor, trial.data());
      const LineSums sums = sums_of(trial.data());
      const float determinant = weight_ * sums.squares - sums.codes * sums.codes;
      if (!(determinant > 0)) continue;
      Line line{(weight_ * sums.products - sum_ * sums.codes) / determinant,
                (sums.squares * sum_ - sums.codes * sums.products) / determinant};
      if (line.minimum > 0) line = {sums.products / sums.squares, 0};
      const float error = error_of(line, trial.data());
      if (!(error < least)) continue;
      std::copy_n(trial.data(), x_.size(), codes);
      least = error;
      best = line;
      low_ = line.minimum;  // later trials begin there, as in ggml
    }
    return {best.scale, -best.minimum};
  }

 private:
  void round(float factor, std::uint8_t* codes) const {
    for (std::size_t i = 0; i < x_.size(); ++i)
      codes[i] =
          static_cast<std::uint8_t>(std::clamp(ggml_nearest(factor * (x_[i] - low_)), 0, most_));
  }
  LineSums sums_of(const std::uint8_t* codes) const {
    LineSums sums;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const float code = codes[i];
      sums.codes += weights_[i] * code;
      sums.squares += weights_[i] * code * code;
      sums.products += weights_[i] * code * x_[i];
    }
    return sums;
  }
  float error_of(const Line& line, const std::uint8_t* codes) const {
    float error = 0;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const float difference = line.scale * static_cast<float>(codes[i]) + line.minimum - x_[i];
      error += weights_[i] * (difference * difference);
    }
    return error;
  }

  std::span<const float> x_;
  std::int32_t most_;
  std::array<float, kMinGroup> weights_{};
  float low_ = 0, high_ = 0, weight_ = 0, sum_ = 0;
};

// q4_k, q5_k.
KBlock quantize_with_minima(Quantization rule, std::span<const float, kKBlockValues> x) {
  const bool small = rule == Quantization::kQ4K;
  const std::int32_t most = small ? 15 : 31;
  KBlock block;
  std::array<Line, 8> lines;
  float largest_scale = 0, largest_minimum = 0;
  for (std::size_t g = 0; g < lines.size(); ++g) {
    LineSearch search(x.subspan(g * kMinGroup, kMinGroup), most);
    lines[g] =
        search.run(small ? -1.0F : -0.5F, small ? 20 : 15, block.codes.data() + g * kMinGroup);
    largest_scale = std::max(largest_scale, lines[g].scale);
    largest_minimum = std::max(largest_minimum, lines[g].minimum);
  }
  const float scale_factor = largest_scale > 0 ? 63.0F / largest_scale : 0.0F;
  const float minimum_factor = largest_minimum > 0 ? 63.0F / largest_minimum : 0.0F;
  block.d = to_float16(largest_scale / 63.0F);
  block.dmin = to_float16(largest_minimum / 63.0F);
  if (!is_finite(block)) return block;
  // In bytes before the limit, as ggml has them: a negative scale becomes the largest.
  const auto limited = [](float value) {
    return std::min<std::uint8_t>(63, static_cast<std::uint8_t>(ggml_nearest(value)));
  };
  for (std::size_t g = 0; g < lines.size(); ++g) {
    block.scales[g] = static_cast<std::int8_t>(limited(scale_factor * lines[g].scale));
    block.minima[g] = limited(minimum_factor * lines[g].minimum);
    const float d = to_float(block.d) * static_cast<float>(block.scales[g]);
    if (d == 0) continue;
    const float minimum = to_float(block.dmin) * static_cast<float>(block.minima[g]);
    for (std::size_t i = g * kMinGroup; i < (g + 1) * kMinGroup; ++i)
      block.codes[i] =
          static_cast<std::uint8_t>(std::clamp(ggml_nearest((x[i] + minimum) / d), 0, most));
  }
  return block;
}

// The scale of a group of q6_k, of 19 trials (make_qx_quants with weights x^2). Codes are 0 .. 63.
float scale_search(std::span<const float> x, std::uint8_t* codes) {
  constexpr std::int32_t kMost = 32;
  float largest = 0;  // with its sign; the first of several
  for (const float value : x) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  if (std::abs(largest) < kLeastMagnitude) {
    std::fill_n(codes, x.size(), std::uint8_t{0});
    return 0;
  }
  float scale = 0, best = 0;
  const auto trial = [&](float factor, bool first) {
    float products = 0, squares = 0;
    for (const float value : x) {
      const auto code =
          static_cast<float>(std::clamp(ggml_nearest(factor * value), -kMost, kMost - 1));
      const float weight = value * value;
      products += weight * value * code;
      squares += weight * code * code;
    }
    if (!first && !(squares > 0 && products * products > best * squares)) return;
    for (std::size_t i = 0; i < x.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(
          kMost + std::clamp(ggml_nearest(factor * x[i]), -kMost, kMost - 1));
    }
    scale = squares != 0 ? products / squares : 0.0F;
    best = scale * products;
  };
  trial(-static_cast<float>(kMost) / largest, true);
  for (int step = -9; step <= 9; ++step) {
    if (step != 0) {
      trial(-(static_cast<float>(kMost) + 0.1F * static_cast<float>(step)) / largest, false);
    }
  }
  return scale;
}

KBlock quantize_q6(std::span<const float, kKBlockValues> x) {
  KBlock block;
  std::array<float, 16> scales{};
  float largest = 0;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    scales[g] =
        scale_search(x.subspan(g * kScaleGroup, kScaleGroup), block.codes.data() + g * kScaleGroup);
    if (std::abs(scales[g]) > std::abs(largest)) largest = scales[g];
  }
  if (std::abs(largest) < kLeastMagnitude) return {};
  const float factor = -128.0F / largest;
  block.d = to_float16(1 / factor);
  if (!is_finite(block)) return block;
  for (std::size_t g = 0; g < scales.size(); ++g) {
    block.scales[g] = static_cast<std::int8_t>(std::min(127, ggml_nearest(factor * scales[g])));
    const float d = to_float(block.d) * static_cast<float>(block.scales[g]);
    if (d == 0) continue;
    for (std::size_t i = g * kScaleGroup; i < (g + 1) * kScaleGroup; ++i)
      block.codes[i] = static_cast<std::uint8_t>(32 + std::clamp(ggml_nearest(x[i] / d), -32, 31));
  }
  return block;
}

}  // namespace

bool is_finite(const KBlock& block) {
  return std::isfinite(to_float(block.d)) && std::isfinite(to_float(block.dmin));
}

KBlock quantize_k(Quantization rule, std::span<const float, kKBlockValues> values) {
  for (const float value : values) {
    if (std::abs(value) <= kLargestValue) continue;  // false for NaN
    KBlock none;
    none.d = to_float16(std::numeric_limits<float>::infinity());
    return none;
  }
  return rule == Quantization::kQ6K ? quantize_q6(values) : quantize_with_minima(rule, values);
}

void k_values(Quantization rule, const KBlock& block, float* values) {
  const float d = to_float(block.d);
  for (std::int64_t i = 0; i < kKBlockValues; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (rule == Quantization::kQ6K) {
      values[i] = d * static_cast<float>(block.scales[at / kScaleGroup]) *
                  static_cast<float>(static_cast<int>(block.codes[at]) - 32);
      continue;
    }
    const std::size_t group = at / kMinGroup;
    values[i] = d * static_cast<float>(block.scales[group]) * static_cast<float>(block.codes[at]) -
                to_float(block.dmin) * static_cast<float>(block.minima[group]);
  }
}

void put_k_block(Quantization rule, const KBlock& block, const CodedRow& to, std::int64_t index) {
  const bool bytes = rule != Quantization::kQ4K;
  const int zero = rule == Quantization::kQ6K ? 32 : 0;
  std::byte* codes = to.codes + index * (bytes ? kKBlockValues : kKBlockValues / 2);
  for (std::size_t i = 0; i < block.codes.size(); ++i) {
    if (bytes) {
      codes[i] = static_cast<std::byte>(static_cast<int>(block.codes[i]) - zero);
    } else if (i % 2 == 1) {
      codes[i / 2] = static_cast<std::byte>(block.codes[i - 1] | block.codes[i] << 4);
    }
  }
  const std::int64_t groups =
      kKBlockValues / (rule == Quantization::kQ6K ? kScaleGroup : kMinGroup);
  const auto count = static_cast<std::size_t>(groups);
  std::memcpy(to.scales + index * groups, block.scales.data(), count);
  to.block_scales[index] = to_float(block.d);
  if (zero != 0) return;
  std::memcpy(to.minima + index * groups, block.minima.data(), count);
  to.block_minima[index] = to_float(block.dmin);
}

}  // namespace piton
