#include <arm_acle.h>
#include <sys/auxv.h>
#include <zlib.h>

#include <cstring>

#include "pickle/crc32.h"

namespace piton {
namespace {

// The processor's own instruction, eight bytes at a time.
__attribute__((target("+crc"))) std::uint32_t by_instruction(std::uint32_t crc,
                                                             std::span<const std::byte> bytes) {
  crc = ~crc;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    crc = __crc32d(crc, word);
  }
  for (; at < bytes.size(); ++at) crc = __crc32b(crc, static_cast<std::uint8_t>(bytes[at]));
  return ~crc;
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  constexpr unsigned long kHasCrc = 1UL << 7;  // HWCAP_CRC32 of Linux
  if ((getauxval(AT_HWCAP) & kHasCrc) != 0) return by_instruction(crc, bytes);
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

}  // namespace piton
