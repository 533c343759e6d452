// The loop over tiles with a software model of the tile instructions, on any machine; and the model
// against the real instructions, if the processor has them.
#include "kernels/cpu/amx/block.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/amx/model.h"
#include "kernels/cpu/amx/table.h"
#include "kernels/cpu/processor/isa.h"

namespace piton::cpu {
namespace {

std::uint16_t bf16(float x) {  // cut, not rounded
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}
float widened(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

// a [m, k] and b [k, n] as rows and as packed sides, made here element by element.
struct Operands {
  std::int64_t m, n, k;
  std::vector<std::uint16_t> a, b;
  std::vector<std::byte> left, right;

  template <typename Draw>
  Operands(std::int64_t m, std::int64_t n, std::int64_t k, Draw draw)
      : m(m), n(n), k(k), a(m * k), b(k * n), left(tile_bytes(m, k)), right(tile_bytes(n, k)) {
    for (auto& x : a) x = draw();
    for (auto& x : b) x = draw();
    auto* to = reinterpret_cast<std::uint16_t*>(left.data());
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t p = 0; p < k; ++p) to[left_at(i, p)] = a[i * k + p];
    }
    to = reinterpret_cast<std::uint16_t*>(right.data());
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t p = 0; p < k; ++p) to[right_at(j, p)] = b[p * n + j];
    }
  }

  std::int64_t tile_at(std::int64_t i, std::int64_t p) const {
    return i / 32 * (tile_pair_bytes(k) / 2) + p / 32 * 1024 + i % 32 / 16 * 512;
  }
  std::int64_t left_at(std::int64_t i, std::int64_t p) const {
    return tile_at(i, p) + i % 16 * 32 + p % 32;
  }
  std::int64_t right_at(std::int64_t j, std::int64_t p) const {
    return tile_at(j, p) + p % 32 / 2 * 32 + j % 16 * 2 + p % 2;
  }
  TileMultiply product(std::vector<float>& sums) const {
    const std::int64_t stride = (n + 31) / 32 * 32;
    sums.assign((m + 31) / 32 * 32 * stride, 0.5F);
    return {.rows = m,
            .columns = n,
            .steps = tile_steps(k),
            .left = {.data = left.data(), .group = tile_pair_bytes(k)},
            .right = {.data = right.data(), .panel = tile_pair_bytes(k)},
            .sums = sums.data(),
            .sums_stride = stride};
  }
};

struct Size {
  std::int64_t m, n, k;
};
const Size kSizes[] = {{1, 1, 1},     {16, 32, 32},  {17, 33, 31},   {33, 20, 65},
                       {40, 70, 300}, {64, 64, 256}, {31, 100, 513}, {64, 64, 32},
                       {96, 33, 96},  {80, 97, 97},  {63, 64, 160},  {130, 65, 224}};

TEST(TileLoop, OnTheModelIsTheProduct) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const Size size : kSizes) {
    const Operands operands(size.m, size.n, size.k, [&] { return bf16(normal(random)); });
    for (const bool adds : {false, true}) {
      std::vector<float> sums;
      TileMultiply product = operands.product(sums);
      product.adds = adds;
      ModelTiles tiles;
      tile_product(tiles, product);
      for (std::int64_t i = 0; i < size.m; ++i) {
        for (std::int64_t j = 0; j < size.n; ++j) {
          double wanted = adds ? 0.5 : 0;
          for (std::int64_t p = 0; p < size.k; ++p) {
            wanted += static_cast<double>(widened(operands.a[i * size.k + p])) *
                      widened(operands.b[p * size.n + j]);
          }
          EXPECT_NEAR(sums[i * product.sums_stride + j], wanted, 4e-7 * (size.k + 1))
              << size.m << " x " << size.n << " x " << size.k << " at " << i << ", " << j;
        }
      }
    }
  }
}

// A chain that pauses has the bits of one that does not.
TEST(TileLoop, HasTheSameBitsInStretches) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  const Operands operands(20, 40, 512, [&] { return bf16(normal(random)); });
  std::vector<float> whole;
  ModelTiles tiles;
  tile_product(tiles, operands.product(whole));
  std::vector<float> parts;
  TileMultiply product = operands.product(parts);
  for (const std::int64_t first : {0, 3, 12}) {
    product.steps = (first == 0 ? 3 : first == 3 ? 9 : 4);
    product.left.data = operands.left.data() + first * kStepBytes;
    product.right.data = operands.right.data() + first * kStepBytes;
    product.adds = first > 0;
    tile_product(tiles, product);
  }
  EXPECT_EQ(parts, whole);
}

class TileModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (best_isa() != Isa::kAmx) GTEST_SKIP() << "this machine has no AMX";
  }
  // Runs both on `operands` and expects the same bits.
  static void expect_same(const Operands& operands) {
    std::vector<float> wanted;
    std::vector<float> got;
    ModelTiles model;
    tile_product(model, operands.product(wanted));
    const TileTable& table = *tile_table(Isa::kAmx);
    const TileScope scope(table);
    table.multiply(operands.product(got));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (std::isnan(wanted[i]) && std::isnan(got[i])) continue;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(wanted[i]))
          << operands.m << " x " << operands.n << " x " << operands.k << " at " << i << ": got "
          << got[i] << ", wanted " << wanted[i];
    }
  }
};

TEST_F(TileModel, HasTheBitsOfTheInstructions) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const Size size : kSizes) {
    expect_same(Operands(size.m, size.n, size.k, [&] { return bf16(normal(random)); }));
  }
}

// Exponents of every size, so that inputs, products and sums are subnormal or overflow.
TEST_F(TileModel, HasTheBitsOfTheInstructionsAtTheEndsOfTheRange) {
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    expect_same(Operands(16, 32, 64, [&] { return static_cast<std::uint16_t>(random()); }));
    expect_same(Operands(16, 32, 64, [&] {  // sums near the smallest normal number
      return static_cast<std::uint16_t>((random() & 0x80FFU) | (0x2000U - (random() % 3 << 7)));
    }));
  }
}

TEST_F(TileModel, KeepsNanAndInfinityAsTheInstructionsDo) {
  const std::uint16_t values[] = {0x7F80, 0xFF80, 0x7FC0, 0x0000, 0x8000, 0x3F80};
  std::mt19937 random(5);
  expect_same(Operands(32, 32, 32, [&] { return values[random() % std::size(values)]; }));
}

}  // namespace
}  // namespace piton::cpu
