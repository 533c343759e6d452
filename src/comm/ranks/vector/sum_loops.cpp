#include "comm/ranks/vector/sum_loops.h"

#include <bit>
#include <cstring>

#define PITON_JOIN2(a, b) a##b
#define PITON_JOIN(a, b) PITON_JOIN2(a, b)

namespace piton::PITON_JOIN(sum_, PITON_ISA) {

  namespace {

  // Elements summed at a time: the running sums (4 or 8 KiB) stay in the first-level cache.
  constexpr std::int64_t kBlock = 1024;

  inline float load(float x) { return x; }
  inline double load(double x) { return x; }
  inline std::uint64_t load(std::int64_t x) { return static_cast<std::uint64_t>(x); }
  inline float load(BFloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
  inline float load(Float16 x) {
    // Shifting exponent and fraction into fp32 position gives a value 2^112 times too small,
    // subnormals included.
    const std::uint32_t size = x.bits & 0x7FFFU;
    const float scaled = std::bit_cast<float>(size << 13) * 0x1p112F;
    const std::uint32_t top = size >= 0x7C00U ? 0x7F800000U : 0U;  // infinity, NaN
    const std::uint32_t sign = std::uint32_t{x.bits & 0x8000U} << 16;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | top | sign);
  }

  inline void store(float sum, float& x) { x = sum; }
  inline void store(double sum, double& x) { x = sum; }
  inline void store(std::uint64_t sum, std::int64_t& x) { x = static_cast<std::int64_t>(sum); }
  inline void store(float sum, BFloat16& x) {
    // Rounds to nearest even like to_bfloat16(), without branches.
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x40U;
    const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    x.bits = static_cast<std::uint16_t>(is_nan ? quiet : rounded);
  }
  inline void store(float sum, Float16& x) {
    // Rounds to nearest even like to_float16(): computes all three cases and selects one.
    const auto bits = std::bit_cast<std::uint32_t>(sum);
    const std::uint32_t size = bits & 0x7FFFFFFFU;
    const std::uint32_t normal = (size - 0x37FFF001U + ((size >> 13) & 1U)) >> 13;
    // Adding 1/2 lets the fp32 adder round at 2^-24, the last place of a subnormal.
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3F000000U;
    const std::uint32_t large = size > 0x7F800000U ? 0x7E00U : 0x7C00U;
    const std::uint32_t half = size >= 0x47800000U ? large : size < 0x38800000U ? small : normal;
    x.bits = static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000U));
  }

  inline float larger(float a, float b) { return b > a || b != b ? b : a; }
  inline double larger(double a, double b) { return b > a || b != b ? b : a; }
  inline std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(b) > static_cast<std::int64_t>(a) ? b : a;
  }

  template <typename T>
  bool reduce_typed(const SumCall& call) {
    using Sum = decltype(load(T{}));
    alignas(64) Sum sum[kBlock];
    for (std::int64_t begin = 0; begin < call.elements; begin += kBlock) {
      const std::int64_t left = call.elements - begin;
      const std::int64_t count = left < kBlock ? left : kBlock;
      const T* first = reinterpret_cast<const T*>(call.sources[0]) + begin;
      for (std::int64_t i = 0; i < count; ++i) sum[i] = load(first[i]);
      for (int member = 1; member < call.num_sources; ++member) {
        const T* source = reinterpret_cast<const T*>(call.sources[member]) + begin;
        if (call.reduction == Reduction::kSum) {
          for (std::int64_t i = 0; i < count; ++i) sum[i] += load(source[i]);
        } else {
          for (std::int64_t i = 0; i < count; ++i) sum[i] = larger(sum[i], load(source[i]));
        }
      }
      T* out = reinterpret_cast<T*>(call.targets[0]) + begin;
      for (std::int64_t i = 0; i < count; ++i) store(sum[i], out[i]);
      for (int other = 1; other < call.num_targets; ++other) {
        std::memcpy(reinterpret_cast<T*>(call.targets[other]) + begin, out, count * sizeof(T));
      }
    }
    return true;
  }

  }  // namespace

  bool reduce(const SumCall& call) {
    switch (call.dtype) {
      case DType::kF64:
        return reduce_typed<double>(call);
      case DType::kF32:
        return reduce_typed<float>(call);
      case DType::kBF16:
        return reduce_typed<BFloat16>(call);
      case DType::kF16:
        return reduce_typed<Float16>(call);
      case DType::kI64:
        return reduce_typed<std::int64_t>(call);
      case DType::kI32:
      case DType::kU8:
        break;
    }
    return false;
  }

}  // namespace piton::PITON_JOIN(sum_,PITON_ISA)
