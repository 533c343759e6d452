// One thread for each element. The log-sum-exp of a row changes after all elements have read it.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

template <typename S>
__device__ bool nothing(S most) {
  return isinf(most) && most < S{0};
}

template <typename T, typename S>
struct MergeElement {
  S* out;
  const S* lse;
  const T* part;
  const S* part_lse;
  std::int64_t queries;
  std::int64_t heads;
  std::int64_t d;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / d;
    const std::int64_t sample = row / (queries * heads);
    const std::int64_t at = (sample * heads + row % heads) * queries + row / heads % queries;
    const S most = lse[at] > part_lse[at] ? lse[at] : part_lse[at];
    if (nothing(most)) return;
    const S w = exp(lse[at] - most);
    const S u = exp(part_lse[at] - most);
    out[i] = (w * out[i] + u * static_cast<S>(widen(part[i]))) / (w + u);
  }
};

template <typename S>
struct MergeSum {
  S* lse;
  const S* part_lse;

  __device__ void operator()(std::int64_t i) const {
    const S most = lse[i] > part_lse[i] ? lse[i] : part_lse[i];
    if (nothing(most)) return;
    lse[i] = most + log(exp(lse[i] - most) + exp(part_lse[i] - most));
  }
};

}  // namespace

void execute(const AttentionMerge& call, const CallContext& context) {
  with_floating(call.part.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    launch_elements("launch of attention merge", call.part.elements(),
                    MergeElement<T, S>{pointer<S>(call.out), pointer<const S>(call.lse),
                                       pointer<const T>(call.part), pointer<const S>(call.part_lse),
                                       call.part.dim(1), call.part.dim(2), call.part.dim(3)},
                    context.stream);
    launch_elements("launch of the sums of attention merge", call.lse.elements(),
                    MergeSum<S>{pointer<S>(call.lse), pointer<const S>(call.part_lse)},
                    context.stream);
  });
}

}  // namespace piton::cuda
