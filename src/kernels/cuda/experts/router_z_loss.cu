// The z-loss of routers: a warp for each token. One block sums the squares, in an order that
// depends only on their number.
#include <limits>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/experts/token_softmax.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"

namespace piton::cuda {
namespace {

template <typename S>
struct LogSums {
  double* squares;  // [n], or nullptr
  S* dlogits;       // or nullptr
  const S* logits;
  const S* scale;  // of dlogits
  double factor;   // of scale
  std::int64_t n;
  int experts;
  S lowest;  // -infinity
};

template <typename S>
__global__ void __launch_bounds__(kThreads, kBlocks) log_sum_rows(LogSums<S> all) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t token = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= all.n) return;
  const S* x = all.logits + token * all.experts;
  const TokenSoftmax<S> softmax = softmax_of(x, all.experts, all.lowest);
  const S z = softmax.largest + log(softmax.sum);
  if (all.squares != nullptr && lane == 0)
    all.squares[token] = static_cast<double>(z) * static_cast<double>(z);
  if (all.dlogits == nullptr) return;
  const S slope =
      static_cast<S>(all.factor * static_cast<double>(*all.scale) * static_cast<double>(z));
  for (int e = lane; e < all.experts; e += kWarp)
    all.dlogits[token * all.experts + e] = slope * softmax.probability(x[e]);
}

struct SquareSum {
  double* sum;
  const double* squares;
  std::int64_t n;
};

__global__ void __launch_bounds__(kThreads, kBlocks) add_squares(SquareSum all) {
  const double sum = sum_in_block(all.squares, all.n, shared_array<double>());
  if (threadIdx.x == 0) *all.sum += sum;
}

template <typename S>
void launch_log_sums(LogSums<S> sums, const Tensor& logits, cudaStream_t stream) {
  sums.logits = pointer<const S>(logits);
  sums.n = logits.dim(0);
  sums.experts = static_cast<int>(logits.dim(1));
  sums.lowest = -std::numeric_limits<S>::infinity();
  launch("launch of router z-loss", log_sum_rows<S>,
         {.blocks = {static_cast<unsigned>((sums.n + kWarps - 1) / kWarps), 1, 1}}, sums, stream);
}

}  // namespace

void execute(const RouterZLoss& call, const CallContext& context) {
  const std::int64_t n = call.logits.dim(0);
  if (n == 0) return;
  const Tensor squares = scratch(DType::kF64, {n}, context);
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch_log_sums(LogSums<S>{.squares = pointer<double>(squares)}, call.logits, context.stream);
  });
  launch("launch of router z-loss, sum", add_squares,
         {.blocks = {1, 1, 1}, .shared_bytes = kWarps * sizeof(double)},
         SquareSum{
             .sum = pointer<double>(call.sum), .squares = pointer<const double>(squares), .n = n},
         context.stream);
}

void execute(const RouterZLossBackward& call, const CallContext& context) {
  if (call.logits.dim(0) == 0) return;
  with_sums(call.logits.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch_log_sums(LogSums<S>{.dlogits = pointer<S>(call.dlogits),
                               .scale = pointer<const S>(call.scale),
                               .factor = 2 * call.factor},
                    call.logits, context.stream);
  });
}

}  // namespace piton::cuda
