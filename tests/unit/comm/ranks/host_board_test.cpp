#include "comm/ranks/host_board.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(RingCapacity, KeepsTheRingsOfAHostBelow64MiB) {
  EXPECT_EQ(ring_capacity(2), 512 << 10);
  EXPECT_EQ(ring_capacity(11), 512 << 10);
  EXPECT_EQ(ring_capacity(12), 256 << 10);
  EXPECT_EQ(ring_capacity(64), 16 << 10);
  EXPECT_EQ(ring_capacity(128), 16 << 10);
}

// Across the end of the ring, up to its last byte.
TEST(ByteRing, GivesBackWhatWasWrittenAcrossItsEnd) {
  std::atomic<std::uint64_t> written = 5, read = 5;
  std::byte memory[8] = {};
  ByteRing ring{&written, &read, nullptr, memory, 8};
  const std::byte in[8] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                           std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  for (const std::int64_t bytes : {3, 8, 5}) {
    ring.write(in, bytes);
    EXPECT_EQ(ring.readable(), bytes);
    std::byte out[8] = {};
    ring.take(out, bytes);
    EXPECT_TRUE(std::equal(out, out + bytes, in)) << bytes;
    EXPECT_EQ(ring.writable(), 8);
  }
}

}  // namespace
}  // namespace piton
