// Products of codes whose groups have minima, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/isa.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kRows = 5;  // of the weight
constexpr std::int64_t kColumns = 288;
constexpr std::int64_t kGroup = 32;
constexpr std::int64_t kGroups = kColumns / kGroup;

// A weight with numbers that repeat nowhere in a row.
struct Weight {
  explicit Weight(bool nibbles) : nibbles(nibbles) {
    for (std::int64_t i = 0; i < kRows * kColumns / (nibbles ? 2 : 1); ++i)
      codes.push_back(static_cast<std::uint8_t>(i * 37 + i / 7));
    for (std::int64_t i = 0; i < kRows * kGroups; ++i) {
      scales.push_back(0.01F + 0.001F * static_cast<float>(i % 11));
      minima.push_back(0.05F * static_cast<float>(i % 7) - 0.1F);
    }
    for (int code = 0; code < 16; ++code) values.push_back(static_cast<float>(code));
  }
  CodedRows rows() const {
    return {.codes = codes.data(),
            .stride = kColumns / (nibbles ? 2 : 1),
            .nibbles = nibbles,
            .columns = kColumns,
            .group = kGroup,
            .groups = kGroups,
            .scales = scales.data(),
            .minima = minima.data(),
            .values = values.data(),
            .integers = integers.data()};
  }
  double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t place = row * kColumns + column;
    const std::int64_t group = row * kGroups + column / kGroup;
    const int code = !nibbles         ? static_cast<std::int8_t>(codes[place])
                     : place % 2 == 0 ? codes[place / 2] & 15
                                      : codes[place / 2] >> 4;
    return static_cast<double>(scales[group]) * code - minima[group];
  }

  bool nibbles;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minima, values;
  std::vector<std::int16_t> integers = std::vector<std::int16_t>(16);
};

float x_at(std::int64_t row, std::int64_t column) {
  return std::sin(static_cast<float>(row * 31 + column * 3)) + 0.25F;
}

void expect_products(const CodesTable& table, bool nibbles, std::int64_t n) {
  const Weight weight(nibbles);
  const CodedRows w = weight.rows();
  std::vector<std::int16_t> values(static_cast<std::size_t>(n * code_row_size(kColumns)));
  std::vector<float> scales(static_cast<std::size_t>(n * code_scales(w) + 16));
  std::vector<float> sums(static_cast<std::size_t>(n * code_group_sums(w)));
  std::vector<float> memory(static_cast<std::size_t>(code_memory(w)));
  std::vector<float> y(static_cast<std::size_t>(n * kRows));
  const IntegerRows x{values.data(), scales.data(), sums.data()};
  for (std::int64_t r = 0; r < n; ++r) {
    std::vector<float> row;
    for (std::int64_t c = 0; c < kColumns; ++c) row.push_back(x_at(r, c));
    table.round_row(x, r, row.data(), w);
  }
  table.multiply(y.data(), kRows, x, n, w, 0, kRows, memory.data());
  for (std::int64_t r = 0; r < n; ++r) {
    for (std::int64_t o = 0; o < kRows; ++o) {
      double sum = 0;
      double size = 0;
      for (std::int64_t c = 0; c < kColumns; ++c) {
        sum += weight.at(o, c) * x_at(r, c);
        size += std::abs(weight.at(o, c)) * 1.25;
      }
      // x is rounded to 1/65534 of its largest value, and sums are of fp32.
      EXPECT_NEAR(y[r * kRows + o], sum, size * 2e-5) << "row " << r << " of " << n << ", " << o;
    }
  }
}

TEST(CodesMinima, AreSubtractedFromProducts) {
  for (const Isa isa : isas_here()) {
    for (const bool nibbles : {false, true}) {
      for (const std::int64_t n : {1, 3, 8}) expect_products(codes_table(isa), nibbles, n);
    }
  }
}

}  // namespace
}  // namespace piton::cpu
