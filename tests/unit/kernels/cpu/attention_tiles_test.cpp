// The tiles that attention computes, checked by counting.
#include "kernels/cpu/attention/attention_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "support/tensors.h"

namespace piton::cpu {
namespace {

struct Count {
  std::int64_t tiles = 0;
  std::int64_t keys_end = 0;  // behind the last tile
};

// Tiles of 64 x 64 over `s` queries and keys.
Count count(const AttentionMask& mask, std::int64_t s, std::int64_t block_rows = 0) {
  std::vector<std::byte> memory(Sight::bytes(s, s));
  const Sight sight(mask, block_rows, 0, s, s, memory.data());
  Count count;
  sight.for_tiles(0, s, 64, 64, [&](std::int64_t query, std::int64_t queries, std::int64_t key) {
    EXPECT_LE(query + queries, s);
    ++count.tiles;
    count.keys_end = std::max(count.keys_end, key + 64);
  });
  return count;
}

TEST(AttentionTiles, OfCausalAttentionAreThoseUpToTheDiagonal) {
  for (const std::int64_t n : {1, 2, 5, 16})
    EXPECT_EQ(count({}, 64 * n).tiles, n * (n + 1) / 2) << n;
  EXPECT_EQ(count({}, 0).tiles, 0);
  EXPECT_EQ(count({}, 1).tiles, 1);
  EXPECT_EQ(count({}, 65).tiles, 3);
  EXPECT_EQ(count({.causal = false}, 64 * 5).tiles, 25);
}

TEST(AttentionTiles, ShrinkWithTheWindow) {
  const std::int64_t n = 16;
  const std::int64_t s = 64 * n;
  std::int64_t wider = count({}, s).tiles;
  for (const std::int64_t before : {s - 1, s / 2, s / 4, std::int64_t{64}, std::int64_t{0}}) {
    const std::int64_t tiles = count({.window_before = before}, s).tiles;
    EXPECT_LE(tiles, wider) << before;
    wider = tiles;
  }
  // A window of 64 w keys before a token reaches w tiles before its own.
  for (const std::int64_t w : {1, 3, 7}) {
    EXPECT_EQ(count({.window_before = 64 * w}, s).tiles, (w + 1) * n - w * (w + 1) / 2) << w;
  }
  EXPECT_EQ(count({.window_before = 0}, s).tiles, n);
  const auto most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(count({.window_before = most, .window_after = most}, s).tiles, n * (n + 1) / 2);
  EXPECT_EQ(count({.window_before = std::int64_t{1} << 33}, s).tiles, n * (n + 1) / 2);
  EXPECT_EQ(count({.window_after = -s}, s).tiles, 0);
}

TEST(AttentionTiles, OfPackedDocumentsAreThoseOfEachDocument) {
  AttentionMask mask;
  mask.query_segments = host_tensor(DType::kI32, {1, 512});
  for (std::int64_t i = 0; i < 512; ++i)
    mask.query_segments.data<std::int32_t>()[i] = static_cast<std::int32_t>(i / 128);
  mask.key_segments = mask.query_segments;
  EXPECT_EQ(count(mask, 512).tiles, 4 * 3);
}

// Of a prefix of p tiles its square, and those up to the diagonal behind it.
TEST(AttentionTiles, OfAPrefixAreThoseThatItSees) {
  const std::int64_t n = 16;
  for (const std::int64_t p : {1, 5, 16}) {
    AttentionMask mask;
    mask.query_reach = host_tensor(DType::kI32, {1, 64 * n});
    std::fill_n(mask.query_reach.data<std::int32_t>(), 64 * n,
                static_cast<std::int32_t>(64 * p - 1));
    EXPECT_EQ(count(mask, 64 * n).tiles, p * p + n * (n + 1) / 2 - p * (p + 1) / 2) << p;
  }
}

// n (n + 1) / 2 of n^2 blocks, each of (B / 64)^2 tiles, whatever the mask hides inside of them.
TEST(AttentionTiles, OfTheTriangleAreItsBlocks) {
  for (const std::int64_t block : {64, 128, 512}) {
    for (const std::int64_t n : {1, 2, 4}) {
      const std::int64_t inside = block / 64 * (block / 64);
      EXPECT_EQ(count({}, n * block, block).tiles, n * (n + 1) / 2 * inside) << block << " x " << n;
      EXPECT_EQ(count({.window_before = 3}, n * block, block).tiles, n * (n + 1) / 2 * inside);
    }
  }
  // What is left over sees all keys, and less than a block is a block.
  EXPECT_EQ(count({}, 512 + 64, 128).tiles, 10 * 4 + 9);
  EXPECT_EQ(count({}, 512 + 64, 128).keys_end, 512 + 64);
  EXPECT_EQ(count({}, 192, 512).tiles, 9);
  EXPECT_EQ(count({}, 1, 512).tiles, 1);
}

}  // namespace
}  // namespace piton::cpu
