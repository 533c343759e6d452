// Launches the products of experts: 16 bits on tensor cores, fp32 and fp64 on the other units.
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_tensor.cuh"
#include "kernels/cuda/experts/expert_units.cuh"

namespace piton::cuda {
namespace {

// The sizes of a launch; `n`: rows of all experts.
template <ExpertKind kKind, int kRows, int kColumns, typename T, typename Y>
unsigned tile_expert_product(ExpertMatrices<T, Y>& all, std::int64_t n) {
  all.column_tiles = (all.columns + kColumns - 1) / kColumns;
  all.row_tiles = (all.height + kRows - 1) / kRows;
  const std::int64_t slots =
      kKind == ExpertKind::kWeight ? all.experts * all.row_tiles : n / kRows + all.experts;
  const std::int64_t blocks = slots * all.column_tiles;
  PITON_ASSERT(blocks < std::int64_t{1} << 31, "cuda: {} tiles of experts", blocks);
  return static_cast<unsigned>(blocks);
}

template <ExpertKind kKind, typename T, typename Y>
void launch_expert_product(std::string_view name, ExpertMatrices<T, Y> all, std::int64_t n,
                           cudaStream_t stream) {
  if constexpr (sizeof(T) == 2) {
    using Tensor16 = ExpertTensor;
    const unsigned blocks = tile_expert_product<kKind, Tensor16::kRows, Tensor16::kColumns>(all, n);
    launch(name, multiply_experts_on_tensor_cores<kKind, T, Y>,
           {.blocks = {blocks, 1, 1}, .shared_bytes = Tensor16::kSharedBytes}, all, stream);
  } else {
    using Units = ExpertUnits<T>;
    const unsigned blocks = tile_expert_product<kKind, Units::kRows, Units::kColumns>(all, n);
    launch(name, multiply_experts_on_units<kKind, T>,
           {.blocks = {blocks, 1, 1}, .shared_bytes = Units::kSharedBytes}, all, stream);
  }
}

template <typename T>
ExpertSide<T> side_of(const Tensor& rows) {
  return {pointer<const T>(rows), rows.stride(0)};
}

bool loads_vectors(const Tensor& side) {
  return vectors_fit(kVectorBytes / static_cast<int>(size_bytes(side.dtype())), {side});
}

// use(T, Y) with the types of both sides and of the result: the same, or fp32 for 16 bits.
template <typename Use>
void with_expert_types(const Tensor& side, const Tensor& result, Use use) {
  with_stream(
      result.dtype(), side.dtype(),
      [&]<typename Y, typename T>(std::type_identity<Y> y, std::type_identity<T> t) { use(t, y); });
}

// The biases of the experts, one after another [m, out]; or empty.
Tensor bias_rows(const LinearForward& call) {
  return call.bias.defined() ? call.bias.reshape({call.weight.matrices, call.weight.out})
                             : call.bias;
}

int experts_of(const Tensor& first_rows) { return static_cast<int>(first_rows.dim(0)) - 1; }

template <typename T>
struct ExpertBiasSums {
  Wide<T>* dbias;  // [m, out]
  ExpertSide<T> dy;
  const std::int32_t* first_rows;
  std::int64_t out;
};

// 32 columns of the rows of one expert a block: each of its warps every kWarps-th row, then the
// warps in order.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) add_expert_biases(ExpertBiasSums<T> all) {
  using S = Wide<T>;
  S* parts = shared_array<S>();  // [kWarps, kWarp]
  const std::int64_t expert = blockIdx.y;
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarp + threadIdx.x % kWarp;
  const std::int64_t end = all.first_rows[expert + 1];
  S sum = 0;
  if (column < all.out) {
#pragma unroll 4
    for (std::int64_t row = all.first_rows[expert] + threadIdx.x / kWarp; row < end; row += kWarps)
      sum += static_cast<S>(widen(all.dy.data[row * all.dy.stride + column]));
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kWarp || column >= all.out) return;
  for (int warp = 1; warp < kWarps; ++warp) sum += parts[warp * kWarp + threadIdx.x];
  all.dbias[expert * all.out + column] += sum;
}

void add_bias_gradient(const LinearBackwardWeight& call, const CallContext& context) {
  const std::int64_t out = call.dy.dim(1);
  with_floating(call.dy.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch("launch of linear backward weight of experts, bias", add_expert_biases<T>,
           {.blocks = {static_cast<unsigned>((out + kWarp - 1) / kWarp),
                       static_cast<unsigned>(experts_of(call.first_rows)), 1},
            .shared_bytes = kThreads * sizeof(Wide<T>)},
           ExpertBiasSums<T>{.dbias = pointer<Wide<T>>(call.dbias),
                             .dy = side_of<T>(call.dy),
                             .first_rows = pointer<const std::int32_t>(call.first_rows),
                             .out = out},
           context.stream);
  });
}

}  // namespace

void multiply_experts(const LinearForward& call, const CallContext& context) {
  const Tensor& weight = call.weight.tensor;
  with_expert_types(
      call.x, call.y, [&]<typename T, typename Y>(std::type_identity<T>, std::type_identity<Y>) {
        launch_expert_product<ExpertKind::kForward>(
            "launch of linear forward of experts",
            ExpertMatrices<T, Y>{.end = linear_end<Y, T>(call, nullptr),
                                 .left = side_of<T>(call.x),
                                 .right = side_of<T>(weight),
                                 .first_rows = pointer<const std::int32_t>(call.first_rows),
                                 .experts = experts_of(call.first_rows),
                                 .height = call.weight.out,
                                 .columns = call.weight.out,
                                 .depth = call.weight.in,
                                 .left_vectors = loads_vectors(call.x),
                                 .right_vectors = loads_vectors(weight),
                                 .end_vectors = vectors_fit(2, {call.y, call.preactivation,
                                                                call.residual, bias_rows(call)})},
            call.x.dim(0), context.stream);
      });
}

void multiply_experts(const LinearBackwardInput& call, const CallContext& context) {
  const Tensor& weight = call.weight.tensor;
  with_expert_types(
      call.dy, call.dx, [&]<typename T, typename Y>(std::type_identity<T>, std::type_identity<Y>) {
        launch_expert_product<ExpertKind::kInput>(
            "launch of linear backward input of experts",
            ExpertMatrices<T, Y>{.end = {.y = pointer<Y>(call.dx),
                                         .residual = pointer<const Y>(call.residual),
                                         .y_stride = call.dx.stride(0),
                                         .residual_stride = row_stride_of(call.residual)},
                                 .left = side_of<T>(call.dy),
                                 .right = side_of<T>(weight),
                                 .first_rows = pointer<const std::int32_t>(call.first_rows),
                                 .experts = experts_of(call.first_rows),
                                 .height = call.weight.out,
                                 .columns = call.weight.in,
                                 .depth = call.weight.out,
                                 .left_vectors = loads_vectors(call.dy),
                                 .right_vectors = loads_vectors(weight),
                                 .end_vectors = vectors_fit(2, {call.dx, call.residual})},
            call.dy.dim(0), context.stream);
      });
}

void multiply_experts(const LinearBackwardWeight& call, const CallContext& context) {
  const int experts = experts_of(call.first_rows);
  const std::int64_t in = call.dweight.dim(1);
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    using Y = Wide<T>;
    launch_expert_product<ExpertKind::kWeight>(
        "launch of linear backward weight of experts",
        ExpertMatrices<T, Y>{
            .end = {.y = pointer<Y>(call.dweight),
                    .residual = call.overwrites ? nullptr : pointer<const Y>(call.dweight),
                    .y_stride = in,
                    .residual_stride = in},
            .left = side_of<T>(call.dy),
            .right = side_of<T>(call.x),
            .first_rows = pointer<const std::int32_t>(call.first_rows),
            .experts = experts,
            .height = call.dweight.dim(0) / experts,
            .columns = in,
            .left_vectors = loads_vectors(call.dy),
            .right_vectors = loads_vectors(call.x),
            .end_vectors = vectors_fit(2, {call.dweight}),
            .adds = !call.overwrites},
        call.x.dim(0), context.stream);
  });
  if (call.dbias.defined()) add_bias_gradient(call, context);
}

}  // namespace piton::cuda
