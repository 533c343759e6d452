// Products of codes whose groups have minima, on every instruction set of this machine: groups of
// all kinds of sizes, and rows that end within the lanes of a vector.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/processor/isa.h"
#include "tensor/dtype.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kRows = 5;  // of the weight

struct Sizes {
  bool nibbles;
  std::int64_t columns;
  std::int64_t group;
};

// A weight with numbers that repeat nowhere in a row.
struct Weight {
  explicit Weight(const Sizes& sizes)
      : nibbles(sizes.nibbles),
        columns(sizes.columns),
        group(sizes.group),
        groups((columns + group - 1) / group) {
    for (std::int64_t i = 0; i < kRows * columns / (nibbles ? 2 : 1); ++i)
      codes.push_back(static_cast<std::uint8_t>(i * 37 + i / 7));
    for (std::int64_t i = 0; i < kRows * groups; ++i) {
      scales.push_back(0.01F + 0.001F * static_cast<float>(i % 11));
      minima.push_back(0.05F * static_cast<float>(i % 7) - 0.1F);
    }
    for (int code = 0; code < 16; ++code) values.push_back(static_cast<float>(code));
  }
  CodedRows rows() const {
    return {.codes = codes.data(),
            .stride = columns / (nibbles ? 2 : 1),
            .nibbles = nibbles,
            .columns = columns,
            .group = group,
            .groups = groups,
            .scales = scales.data(),
            .minima = minima.data(),
            .values = values.data(),
            .integers = integers.data()};
  }
  double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t place = row * columns + column;
    const std::int64_t at = row * groups + column / group;
    const int code = !nibbles         ? static_cast<std::int8_t>(codes[place])
                     : place % 2 == 0 ? codes[place / 2] & 15
                                      : codes[place / 2] >> 4;
    return static_cast<double>(scales[at]) * code - minima[at];
  }

  bool nibbles;
  std::int64_t columns, group, groups;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, minima, values;
  std::vector<std::int16_t> integers = std::vector<std::int16_t>(16);
};

float x_at(std::int64_t row, std::int64_t column) {
  return std::sin(static_cast<float>(row * 31 + column * 3)) + 0.25F;
}

// Of n rows of x by all rows of the weight; NaN is in what is not to be read.
std::vector<float> products(const CodesTable& table, const CodedRows& w, std::int64_t first,
                            std::int64_t n) {
  const float nan = std::nanf("");
  std::vector<std::int16_t> values(static_cast<std::size_t>(n * code_row_size(w.columns)), 12345);
  std::vector<float> scales(static_cast<std::size_t>(n * code_scales(w)), nan);
  std::vector<float> sums(static_cast<std::size_t>(n * code_group_sums(w)), nan);
  std::vector<float> memory(static_cast<std::size_t>(code_memory(w)), nan);
  std::vector<float> y(static_cast<std::size_t>(n * kRows));
  const IntegerRows x{values.data(), scales.data(), sums.data()};
  for (std::int64_t r = 0; r < n; ++r) {
    std::vector<float> row;
    for (std::int64_t c = 0; c < w.columns; ++c) row.push_back(x_at(first + r, c));
    table.round_row(x, r, row.data(), w);
  }
  table.multiply(y.data(), kRows, x, n, w, 0, kRows, memory.data());
  return y;
}

void expect_products(const CodesTable& table, const Sizes& sizes, std::int64_t n) {
  const Weight weight(sizes);
  const CodedRows w = weight.rows();
  const std::vector<float> y = products(table, w, 0, n);
  for (std::int64_t r = 0; r < n; ++r) {
    const std::vector<float> alone = products(table, w, r, 1);
    for (std::int64_t o = 0; o < kRows; ++o) {
      double sum = 0;
      double size = 0;
      for (std::int64_t c = 0; c < w.columns; ++c) {
        sum += weight.at(o, c) * x_at(r, c);
        size += std::abs(weight.at(o, c)) * 1.25;
      }
      // x is rounded to 1/65534 of its largest value, and sums are of fp32.
      EXPECT_NEAR(y[r * kRows + o], sum, size * 2e-5) << "row " << r << " of " << n << ", " << o;
      EXPECT_EQ(y[r * kRows + o], alone[o]) << "row " << r << " of " << n << " and alone, " << o;
    }
  }
}

TEST(CodesMinima, AreSubtractedFromProducts) {
  const std::vector<Sizes> all{
      {true, 288, 32},    {true, 320, 64},   {true, 288, 96},  {true, 1056, 128}, {true, 288, 288},
      {false, 288, 16},   {false, 288, 32},  {false, 320, 64}, {false, 288, 96},  {false, 416, 128},
      {false, 1056, 512}, {false, 288, 288}, {false, 32, 32}};
  for (const Isa isa : isas_here()) {
    for (const Sizes& sizes : all) {
      SCOPED_TRACE(::testing::Message() << (sizes.nibbles ? "nibbles, " : "bytes, ")
                                        << sizes.columns << " columns, groups of " << sizes.group);
      for (const std::int64_t n : {1, 3, 8, 14}) expect_products(codes_table(isa), sizes, n);
    }
  }
}

// The same numbers as bytes times a factor of each 256 columns: the product of a byte and one of 16
// bits is exact in fp32.
struct BlockWeight {
  explicit BlockWeight(const Sizes& sizes) : whole(sizes) {
    const std::int64_t each = kScaleBlockColumns / sizes.group;
    for (std::int64_t i = 0; i < kRows * whole.groups / each; ++i) {
      block_scales.push_back(to_float(Float16{static_cast<std::uint16_t>(0x2000 + 37 * i)}));
      block_minima.push_back(to_float(Float16{static_cast<std::uint16_t>(0xA400 - 11 * i)}));
    }
    for (std::int64_t i = 0; i < kRows * whole.groups; ++i) {
      scales.push_back(static_cast<std::int8_t>(i * 29 - 50));
      minima.push_back(static_cast<std::int8_t>(i * 13 + 3));
      const auto block = static_cast<std::size_t>(i / each);
      const auto at = static_cast<std::size_t>(i);
      whole.scales[at] = scales[at] * block_scales[block];
      whole.minima[at] = minima[at] * block_minima[block];
    }
  }
  CodedRows rows() const {
    CodedRows w = whole.rows();
    w.scales = scales.data();
    w.minima = minima.data();
    w.block_scales = block_scales.data();
    w.block_minima = block_minima.data();
    return w;
  }

  Weight whole;
  std::vector<std::int8_t> scales, minima;
  std::vector<float> block_scales, block_minima;
};

TEST(CodesMinima, AndScalesOfBlocksHaveTheBitsOfWholeOnes) {
  const std::vector<Sizes> all{{true, 256, 32},  {true, 768, 32},  {true, 2048, 32},
                               {true, 512, 64},  {true, 512, 256}, {false, 256, 16},
                               {false, 768, 16}, {false, 768, 32}, {false, 1280, 128}};
  for (const Isa isa : isas_here()) {
    const CodesTable& table = codes_table(isa);
    for (const Sizes& sizes : all) {
      SCOPED_TRACE(::testing::Message() << (sizes.nibbles ? "nibbles, " : "bytes, ")
                                        << sizes.columns << " columns, groups of " << sizes.group);
      const BlockWeight weight(sizes);
      for (const std::int64_t n : {1, 3, 8})
        EXPECT_EQ(products(table, weight.rows(), 0, n), products(table, weight.whole.rows(), 0, n));
      for (const std::int64_t first : {std::int64_t{0}, sizes.group, std::int64_t{6}}) {
        std::vector<float> got(static_cast<std::size_t>(sizes.columns - first));
        std::vector<float> wanted = got;
        table.expand(got.data(), weight.rows(), 1, first, std::ssize(got));
        table.expand(wanted.data(), weight.whole.rows(), 1, first, std::ssize(got));
        EXPECT_EQ(got, wanted) << "from column " << first;
      }
    }
  }
}

}  // namespace
}  // namespace piton::cpu
