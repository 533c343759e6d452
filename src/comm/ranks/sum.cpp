#include "comm/ranks/sum.h"

#include "comm/ranks/vector/sum_loops.h"

namespace piton {

void reduce(DType dtype, Reduction reduction, std::span<const std::byte* const> sources,
            std::int64_t elements, std::span<std::byte* const> targets) {
  const SumCall call{.dtype = dtype,
                     .reduction = reduction,
                     .sources = sources.data(),
                     .num_sources = static_cast<int>(sources.size()),
                     .targets = targets.data(),
                     .num_targets = static_cast<int>(targets.size()),
                     .elements = elements};
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool known = v4 && v3 ? sum_v4::reduce(call)
                     : v3     ? sum_v3::reduce(call)
                              : sum_v2::reduce(call);
  PITON_ASSERT(known, "a reduction of {}", name(dtype));
}

}  // namespace piton
