// CRC-32 of zip archives (APPNOTE 4.4.7: polynomial 0x04C11DB7, bits reflected), at the speed of
// memory where the processor multiplies without carries (x86-64) or has an instruction for it
// (ARM).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace piton {

// The CRC of bytes whose first part has the CRC `crc` (0: none), and whose rest is `bytes`.
std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes);

}  // namespace piton
