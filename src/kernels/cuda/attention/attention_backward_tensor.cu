// Gradients of attention on tensor cores: of queries, and of keys and values, after what both read
// of each query.
#include "kernels/cuda/attention/gradient_tensor.cuh"
#include "kernels/cuda/attention/warpgroup/warpgroup_attention.h"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

template <typename T>
struct alignas(16) VectorOf {
  T number[8];
};

template <typename T>
__device__ float add_dot(float sum, const VectorOf<T>& a, const VectorOf<T>& b) {
  for (int i = 0; i < 8; ++i) sum = fmaf(widen(a.number[i]), widen(b.number[i]), sum);
  return sum;
}

// kLanes threads: a query of a head.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) query_terms(TensorGrid<T> grid) {
  const BackwardGrid<T>& pairs = grid.pairs;
  const std::int64_t item = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  const std::int64_t row = item % grid.padded;
  const std::int64_t head = item / grid.padded % pairs.heads;
  const std::int64_t sample = item / grid.padded / pairs.heads;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const bool used = sample < grid.samples && row < pairs.sight.queries;
  float sum = 0;
  if (used) {
    const T* dout = pairs.dout.row(sample, row, head);
    const T* out = pairs.out.row(sample, row, head);
    for (std::int64_t c = 8 * lane; c < pairs.d; c += 8 * kLanes) {
      if (grid.vectors && c + 8 <= pairs.d) {
        sum = add_dot(sum, *reinterpret_cast<const VectorOf<T>*>(dout + c),
                      *reinterpret_cast<const VectorOf<T>*>(out + c));
      } else {
        for (std::int64_t i = c; i < c + 8 && i < pairs.d; ++i)
          sum = fmaf(widen(dout[i]), widen(out[i]), sum);
      }
    }
  }
  sum = row_sum(sum);
  if (sample >= grid.samples || lane != 0) return;
  const float lse =
      used ? pairs.lse[(sample * pairs.heads + head) * pairs.sight.queries + row] : kNothing;
  grid.terms[item] = {lse == kNothing ? -kNothing : lse * kLogE2, sum};
}

PairForm form_of(const AttentionBackward& call) {
  if (call.soft_cap != 0 || call.mask.slopes.defined() || call.mask.bias.defined())
    return PairForm::kRuled;
  return call.dropout.probability == 0 ? PairForm::kPlain : PairForm::kDropped;
}

}  // namespace

template <typename T, int kChannels>
void launch_gradients_on_tensor_cores(const AttentionBackward& call, const CallContext& context) {
  const std::int64_t padded = std::int64_t{tiles_of(call.q.dim(1))} * kTensorTile;
  const std::int64_t items = call.q.dim(0) * call.q.dim(2) * padded;
  const Tensor terms = scratch(DType::kF32, {std::max<std::int64_t>(items, 1), 2}, context);
  bool vectors = true;
  for (const Tensor* input : {&call.q, &call.k, &call.v, &call.dout, &call.out})
    vectors = vectors && in_vectors(*input);
  const TensorGrid<T> grid{.pairs = backward_grid<T>(call),
                           .terms = pointer<QueryTerms>(terms),
                           .padded = padded,
                           .samples = call.q.dim(0),
                           .vectors = vectors,
                           .form = form_of(call)};
  if (call.q.elements() > 0) {
    launch("launch of the terms of queries, attention backward", query_terms<T>,
           {.blocks = {static_cast<unsigned>((items * kLanes + kThreads - 1) / kThreads), 1, 1}},
           grid, context.stream);
  }
  if (context.warpgroups && grid.vectors && grid.form == PairForm::kPlain) {
    launch_query_gradient_of_groups<T, kChannels>(call, grid, context.stream);
    return launch_key_gradient_of_groups<T, kChannels>(call, grid, context.stream);
  }
  launch_query_gradient<T, kChannels>(call, grid, context.stream);
  launch_key_gradient<T, kChannels>(call, grid, context.stream);
}

template void launch_gradients_on_tensor_cores<__nv_bfloat16, 8>(const AttentionBackward& call,
                                                                 const CallContext& context);
template void launch_gradients_on_tensor_cores<__nv_bfloat16, 16>(const AttentionBackward& call,
                                                                  const CallContext& context);
template void launch_gradients_on_tensor_cores<__half, 8>(const AttentionBackward& call,
                                                          const CallContext& context);
template void launch_gradients_on_tensor_cores<__half, 16>(const AttentionBackward& call,
                                                           const CallContext& context);

}  // namespace piton::cuda
