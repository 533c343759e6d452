#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace piton {
namespace {

// From python-xxhash 4.1.0 (xxHash 0.8.4): xxh3_64_hexdigest(b"piton"[, seed=1234]) and
// xxh3_128_hexdigest(b"piton").
TEST(Hash64, EqualsPublishedValues) {
  EXPECT_EQ(hash64(""), 0x2D06800538D394C2U);
  EXPECT_EQ(hash64("piton"), 0xEE86EEE2D0B1441CU);
  EXPECT_EQ(hash64("piton", 1234), 0x6CDCB9422D24C186U);
}

std::string stream_hash(std::string_view text) {
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

TEST(StreamHash, EqualsPublishedValues) {
  EXPECT_EQ(stream_hash(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(stream_hash("piton"), "7706c135a2ff13a1c50254d2d55e7fbd");
}

TEST(StreamHash, DoesNotDependOnHowTheBytesAreCut) {
  std::vector<std::byte> bytes(5000);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 131 % 251);
  StreamHash whole;
  whole.add(bytes);
  StreamHash pieces;
  for (std::size_t i = 0, size = 0; i < bytes.size(); i += size, ++size) {
    pieces.add(std::span(bytes).subspan(i, std::min(size, bytes.size() - i)));
    pieces.hex();  // looking does not disturb
  }
  EXPECT_EQ(pieces.hex(), whole.hex());
  bytes[4999] ^= std::byte{1};
  StreamHash other;
  other.add(bytes);
  EXPECT_NE(other.hex(), whole.hex());
}

TEST(StreamHash, MovesWithItsState) {
  StreamHash first;
  const std::string_view text = "piton";
  first.add(std::as_bytes(std::span(text)));
  const StreamHash second = std::move(first);
  EXPECT_EQ(second.hex(), stream_hash(text));
}

}  // namespace
}  // namespace piton
