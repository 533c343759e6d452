#include <immintrin.h>
#include <zlib.h>

#include <array>

#include "pickle/crc32.h"

namespace piton {
namespace {

// x^n modulo the polynomial, bits reflected, as a factor of a product without carries: such a
// product of reflected numbers is one bit too far to the right.
constexpr std::uint64_t power_of_x(int n) {
  std::uint32_t value = 0x80000000;
  for (int i = 0; i < n; ++i) value = value >> 1 ^ ((value & 1) != 0 ? 0xEDB88320 : 0);
  return std::uint64_t{value} << 1;
}

constexpr std::size_t kStreams = 4;  // sums that do not wait for each other
constexpr std::size_t kLane = 16;    // bytes

struct Lane {
  __m128i bits;
};

// lane * x^(8 bytes) + next: the two halves have their own powers.
template <int kBytes>
__attribute__((target("pclmul,sse4.1"))) Lane folded(Lane lane, Lane next) {
  const __m128i powers = _mm_set_epi64x(static_cast<std::int64_t>(power_of_x(8 * kBytes - 32)),
                                        static_cast<std::int64_t>(power_of_x(8 * kBytes + 32)));
  return {_mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane.bits, powers, 0x00),
                                      _mm_clmulepi64_si128(lane.bits, powers, 0x11)),
                        next.bits)};
}

Lane load(const std::byte* from) {
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))};
}

std::uint32_t by_table(std::uint32_t crc, const std::byte* bytes, std::size_t size) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const unsigned char*>(bytes), size));
}

// Of a number of whole lanes, kStreams or more. Folds them into one lane with the same remainder
// (Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, 2009).
__attribute__((target("pclmul,sse4.1"))) std::uint32_t by_products(std::uint32_t crc,
                                                                   const std::byte* bytes,
                                                                   std::size_t size) {
  std::array<Lane, kStreams> lanes;
  for (std::size_t i = 0; i < kStreams; ++i) lanes[i] = load(bytes + i * kLane);
  // The register begins as the complement of the CRC so far, over the first bytes.
  lanes[0].bits = _mm_xor_si128(lanes[0].bits, _mm_cvtsi32_si128(static_cast<int>(~crc)));
  std::size_t at = kStreams * kLane;
  for (; at + kStreams * kLane <= size; at += kStreams * kLane) {
    for (std::size_t i = 0; i < kStreams; ++i)
      lanes[i] = folded<kStreams * kLane>(lanes[i], load(bytes + at + i * kLane));
  }
  Lane sum = lanes[0];
  for (std::size_t i = 1; i < kStreams; ++i) sum = folded<kLane>(sum, lanes[i]);
  for (; at < size; at += kLane) sum = folded<kLane>(sum, load(bytes + at));
  std::array<std::byte, kLane> rest;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), sum.bits);
  // zlib complements before and after: the register is to be 0 before.
  return by_table(0xFFFFFFFF, rest.data(), rest.size());
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, std::span<const std::byte> bytes) {
  const std::size_t whole = bytes.size() / kLane * kLane;
  if (whole < kStreams * kLane || !__builtin_cpu_supports("pclmul"))
    return by_table(crc, bytes.data(), bytes.size());
  crc = by_products(crc, bytes.data(), whole);
  return by_table(crc, bytes.data() + whole, bytes.size() - whole);
}

}  // namespace piton
