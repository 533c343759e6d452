// The CRC by products is zlib's, for every length and part.
#include "pickle/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace piton {
namespace {

std::vector<std::byte> noise(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = 7;
  for (std::byte& one : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    one = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

std::uint32_t zlib_crc(std::uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

TEST(Crc32, IsThatOfTheStandard) {
  // The check value of CRC-32/ISO-HDLC.
  constexpr std::string_view kText = "123456789";
  EXPECT_EQ(crc32(0, std::as_bytes(std::span(kText.data(), kText.size()))), 0xCBF43926U);
  EXPECT_EQ(crc32(0, {}), 0U);
}

TEST(Crc32, OfEveryLengthAndPlaceIsZlibs) {
  const std::vector<std::byte> bytes = noise(1000);
  const std::span<const std::byte> all(bytes);
  for (std::size_t begin = 0; begin < 20; ++begin) {
    for (std::size_t size = 0; begin + size <= all.size(); size += size < 300 ? 1 : 37) {
      const auto part = all.subspan(begin, size);
      ASSERT_EQ(crc32(0x12345678, part), zlib_crc(0x12345678, part)) << begin << " " << size;
    }
  }
}

TEST(Crc32, OfPartsIsThatOfTheWhole) {
  const std::vector<std::byte> bytes = noise(100'000);
  const std::span<const std::byte> all(bytes);
  std::uint32_t crc = 0;
  for (std::size_t at = 0, step = 1; at < all.size(); at += step, step = step * 3 % 9973) {
    step = std::min(step, all.size() - at);
    crc = crc32(crc, all.subspan(at, step));
  }
  EXPECT_EQ(crc, zlib_crc(0, all));
}

}  // namespace
}  // namespace piton
