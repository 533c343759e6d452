#include "comm/mpi/sum.h"

#include <algorithm>
#include <cstring>

namespace piton {

namespace {

// Elements summed at a time: the running sums (4 or 8 KiB) stay in the first-level cache.
constexpr std::int64_t kBlock = 1024;

inline float load(float x) { return x; }
inline double load(double x) { return x; }
inline std::uint64_t load(std::int64_t x) { return static_cast<std::uint64_t>(x); }
inline float load(BFloat16 x) { return to_float(x); }
inline float load(Float16 x) { return to_float(x); }

inline void store(float sum, float& x) { x = sum; }
inline void store(double sum, double& x) { x = sum; }
inline void store(std::uint64_t sum, std::int64_t& x) { x = static_cast<std::int64_t>(sum); }
inline void store(float sum, BFloat16& x) { x = to_bfloat16(sum); }
inline void store(float sum, Float16& x) { x = to_float16(sum); }

inline float larger(float a, float b) { return b > a || b != b ? b : a; }
inline double larger(double a, double b) { return b > a || b != b ? b : a; }
inline std::uint64_t larger(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(b) > static_cast<std::int64_t>(a) ? b : a;
}

template <typename T>
void reduce_typed(Reduction reduction, std::span<const std::byte* const> sources,
                  std::int64_t elements, std::span<std::byte* const> targets) {
  using Sum = decltype(load(T{}));
  Sum sum[kBlock];
  for (std::int64_t begin = 0; begin < elements; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, elements - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < count; ++i) sum[i] = load(first[i]);
    for (std::size_t member = 1; member < sources.size(); ++member) {
      const T* source = reinterpret_cast<const T*>(sources[member]) + begin;
      if (reduction == Reduction::kSum) {
        for (std::int64_t i = 0; i < count; ++i) sum[i] += load(source[i]);
      } else {
        for (std::int64_t i = 0; i < count; ++i) sum[i] = larger(sum[i], load(source[i]));
      }
    }
    T* out = reinterpret_cast<T*>(targets[0]) + begin;
    for (std::int64_t i = 0; i < count; ++i) store(sum[i], out[i]);
    for (std::size_t other = 1; other < targets.size(); ++other) {
      std::memcpy(reinterpret_cast<T*>(targets[other]) + begin, out, count * sizeof(T));
    }
  }
}

}  // namespace

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::int64_t elements, std::span<std::byte* const> targets) {
  switch (dtype) {
    case DType::kF64: return reduce_typed<double>(reduction, sources, elements, targets);
    case DType::kF32: return reduce_typed<float>(reduction, sources, elements, targets);
    case DType::kBF16: return reduce_typed<BFloat16>(reduction, sources, elements, targets);
    case DType::kF16: return reduce_typed<Float16>(reduction, sources, elements, targets);
    case DType::kI64: return reduce_typed<std::int64_t>(reduction, sources, elements, targets);
    case DType::kI32:
    case DType::kU8: break;
  }
  PITON_ASSERT(false, "a reduction of {}", name(dtype));
}

}  // namespace piton
