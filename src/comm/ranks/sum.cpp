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
  const bool known = widest_sum_loops()(call);
  PITON_ASSERT(known, "a reduction of {}", name(dtype));
}

}  // namespace piton
