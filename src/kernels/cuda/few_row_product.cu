// Products of few rows on tensor cores, with W as the left matrix: 16 outputs by 8 rows of x. The
// elements of a sum may have any order as long as both matrices have the same one. So a lane reads
// 16 consecutive bytes of a row, in W and in x, and uses them as its pairs of two fragments
// (tensor_cores.cuh): nothing passes through shared memory.
#include "kernels/cuda/attention/tensor_cores.cuh"
#include "kernels/cuda/few_row_product.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_end.cuh"

namespace piton::cuda {
namespace {

constexpr int kOutputs = 16;     // of a block
constexpr int kVectorWidth = 8;  // elements of 16 bits in 16 bytes
constexpr int kStepWidth = 32;   // columns of x in a step of a warp: a vector of each lane
constexpr int kPartSteps = 4;    // steps whose loads are in flight together
constexpr int kPartWidth = kStepWidth * kPartSteps;
constexpr int kGroupRows = 8;  // rows of x in a fragment

template <typename T, typename B>
struct FewRows {
  LinearEnd<T, B> end;
  const B* x;
  std::int64_t x_stride;
  const B* weight;
  std::int64_t weight_stride;
  std::int64_t in;
  int rows;
};

// A block computes kOutputs outputs of all rows. Its warps take the parts of the columns in turn,
// and are added in order.
template <typename T, typename B, int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups == 1 ? 3 : 2)
    multiply_rows_by_weight(FewRows<T, B> all) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * kOutputs;
  const std::int64_t last = all.end.out - 1;
  // Outputs after the last one are computed from its weights, and not stored.
  const std::int64_t low = first + g < last ? first + g : last;
  const std::int64_t high = first + g + 8 < last ? first + g + 8 : last;
  const B* weights[2] = {all.weight + low * all.weight_stride,
                         all.weight + high * all.weight_stride};
  float sums[kGroups][4] = {};
#pragma unroll 1
  for (std::int64_t begin = warp * kPartWidth; begin < all.in; begin += kWarps * kPartWidth) {
    uint4 w[kPartSteps][2];
    uint4 x[kPartSteps][kGroups];
#pragma unroll
    for (int s = 0; s < kPartSteps; ++s) {
      const std::int64_t c = begin + kStepWidth * s + lane % 4 * kVectorWidth;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        w[s][i] = uint4{0, 0, 0, 0};
        if (c < all.in) w[s][i] = __ldcs(reinterpret_cast<const uint4*>(weights[i] + c));
      }
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const int row = kGroupRows * i + g;
        x[s][i] = uint4{0, 0, 0, 0};
        if (c < all.in && row < all.rows)
          x[s][i] = *reinterpret_cast<const uint4*>(all.x + row * all.x_stride + c);
      }
    }
#pragma unroll
    for (int s = 0; s < kPartSteps; ++s) {
      const std::uint32_t before[4] = {w[s][0].x, w[s][1].x, w[s][0].y, w[s][1].y};
      const std::uint32_t behind[4] = {w[s][0].z, w[s][1].z, w[s][0].w, w[s][1].w};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
        const std::uint32_t right[4] = {x[s][i].x, x[s][i].y, x[s][i].z, x[s][i].w};
        multiply_fragments<B>(sums[i], before, right);
        multiply_fragments<B>(sums[i], behind, right + 2);
      }
    }
  }
  constexpr int kRows = kGroupRows * kGroups;
  float* parts = shared_array<float>();  // [kWarps, kRows, kOutputs]
#pragma unroll
  for (int i = 0; i < kGroups; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = kGroupRows * i + lane % 4 * 2 + e % 2;
      parts[(warp * kRows + row) * kOutputs + g + e / 2 * 8] = sums[i][e];
    }
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kOutputs;
  const std::int64_t output = first + threadIdx.x % kOutputs;
  if (row >= all.rows || output > last) return;
  float sum = 0;
  for (int other = 0; other < kWarps; ++other)
    sum += parts[other * kRows * kOutputs + static_cast<int>(threadIdx.x)];
  all.end.finish(row, output, sum);
}

template <typename T, typename B, int kGroups>
void launch_few_rows(const LinearForward& call, cudaStream_t stream) {
  static_assert(kFewRows * kOutputs == kThreads);
  const Tensor& weight = call.weight.tensor;
  launch("launch of linear forward of few rows", multiply_rows_by_weight<T, B, kGroups>,
         {.blocks = {static_cast<unsigned>((call.weight.out + kOutputs - 1) / kOutputs), 1, 1},
          .shared_bytes = sizeof(float) * kWarps * kGroupRows * kGroups * kOutputs},
         FewRows<T, B>{.end = linear_end<T, B>(call, nullptr),
                       .x = pointer<const B>(call.x),
                       .x_stride = call.x.stride(0),
                       .weight = pointer<const B>(weight),
                       .weight_stride = weight.stride(0),
                       .in = call.weight.in,
                       .rows = static_cast<int>(call.x.dim(0))},
         stream);
}

bool rows_in_vectors(const Tensor& matrix) {
  const auto bits = reinterpret_cast<std::uintptr_t>(matrix.raw()) |
                    static_cast<std::uintptr_t>(matrix.stride(0) * size_bytes(matrix.dtype()));
  return bits % sizeof(uint4) == 0;
}

}  // namespace

bool has_few_rows(const LinearForward& call) {
  return size_bytes(call.x.dtype()) == 2 && call.x.dim(0) <= kFewRows &&
         call.weight.in % kVectorWidth == 0 && rows_in_vectors(call.x) &&
         rows_in_vectors(call.weight.tensor);
}

void multiply_few_rows(const LinearForward& call, cudaStream_t stream) {
  with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
    if constexpr (sizeof(B) == 2) {
      const auto launch_all = [&]<typename T>(std::type_identity<T>) {
        if (call.x.dim(0) <= kGroupRows) return launch_few_rows<T, B, 1>(call, stream);
        launch_few_rows<T, B, 2>(call, stream);
      };
      if (call.y.dtype() == DType::kF32) return launch_all(std::type_identity<float>{});
      launch_all(std::type_identity<B>{});
    }
  });
}

}  // namespace piton::cuda
