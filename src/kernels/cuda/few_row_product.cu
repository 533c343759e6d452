// Products of few rows on tensor cores, with W as the left matrix: 16 outputs by 8 rows of x. The
// elements of a sum may have any order as long as both matrices have the same one. So a lane reads
// 16 consecutive bytes of a row, in W and in x, and uses them as its pairs of two fragments
// (tensor_cores.cuh): nothing passes through shared memory.
#include "kernels/cuda/attention/tensor_cores.cuh"
#include "kernels/cuda/few_row_product.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_end.cuh"
#include "kernels/cuda/weight_codes.cuh"

namespace piton::cuda {
namespace {

constexpr int kOutputs = 16;     // of a block
constexpr int kVectorWidth = 8;  // elements of 16 bits in 16 bytes
constexpr int kStepWidth = 32;   // columns of x in a step of a warp: a vector of each lane
constexpr int kPartSteps = 4;    // steps whose loads are in flight together
constexpr int kPartWidth = kStepWidth * kPartSteps;
constexpr int kGroupRows = 8;  // rows of x in a fragment

// Eight columns of a row of W, from a multiple of 8 on.
template <typename B>
struct PlainWeight {
  static constexpr bool kCoded = false;
  const B* data;
  std::int64_t stride;

  __device__ uint4 eight(std::int64_t row, std::int64_t column) const {
    return __ldcs(reinterpret_cast<const uint4*>(data + row * stride + column));
  }
  __device__ const void* bytes(std::int64_t row, std::int64_t byte) const {
    return reinterpret_cast<const char*>(data + row * stride) + byte;
  }
  __device__ std::int64_t row_bytes(std::int64_t in) const { return in * std::int64_t{sizeof(B)}; }
};

// The same of codes, whose values have the bits of ExpandWeight.
template <typename B, typename Scale>
struct CodedWeight {
  static constexpr bool kCoded = true;
  DeviceCodes<Scale> rows;

  __device__ uint4 eight(std::int64_t row, std::int64_t column) const {
    const CodeGroup<B> group(rows, row, column);
    const std::uint8_t* codes = rows.codes + row * rows.row_bytes();
    if (rows.kind == CodeKind::kInt8) {
      const uint2 all = __ldcs(reinterpret_cast<const uint2*>(codes + column));
      return {pair<8>(group, all.x), pair<8>(group, all.x >> 16), pair<8>(group, all.y),
              pair<8>(group, all.y >> 16)};
    }
    const std::uint32_t all = __ldcs(reinterpret_cast<const std::uint32_t*>(codes + column / 2));
    return {pair<4>(group, all), pair<4>(group, all >> 8), pair<4>(group, all >> 16),
            pair<4>(group, all >> 24)};
  }

  __device__ const void* bytes(std::int64_t row, std::int64_t byte) const {
    return rows.codes + row * rows.row_bytes() + byte;
  }
  __device__ std::int64_t row_bytes(std::int64_t) const { return rows.row_bytes(); }

 private:
  template <int kBits>
  __device__ static std::uint32_t pair(const CodeGroup<B>& group, std::uint32_t codes) {
    return rounded_pair<B>(group.value(codes), group.value(codes >> kBits));
  }
};

template <typename T, typename B, typename Weight>
struct FewRows {
  LinearEnd<T, B> end;
  const B* x;
  std::int64_t x_stride;
  Weight weight;
  std::int64_t in;
  int rows;
};

// Reads the weights of a block into the cache while the kernel in front still runs.
template <typename Weight>
__device__ void prefetch_weights(const Weight& weight, std::int64_t first, std::int64_t last,
                                 std::int64_t in) {
  constexpr std::int64_t kLine = 128;
  const std::int64_t bytes = weight.row_bytes(in);
  const std::int64_t lines = (bytes + kLine - 1) / kLine;
  for (std::int64_t i = threadIdx.x; i < kOutputs * lines; i += kThreads) {
    const std::int64_t row = first + i / lines;
    if (row <= last) prefetch(weight.bytes(row, i % lines * kLine));
  }
}

// A block computes kOutputs outputs of all rows. Its warps take the parts of the columns in turn,
// and are added in order.
// Codes need the registers of two blocks.
template <typename T, typename B, typename Weight, int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups == 1 && !Weight::kCoded ? 3 : 2)
    multiply_rows_by_weight(FewRows<T, B, Weight> all) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4;
  const std::int64_t first = std::int64_t{blockIdx.x} * kOutputs;
  const std::int64_t last = all.end.out - 1;
  prefetch_weights(all.weight, first, last, all.in);
  wait_for_previous();
  let_next_start();
  // Outputs after the last one are computed from its weights, and not stored.
  const std::int64_t outputs[2] = {first + g < last ? first + g : last,
                                   first + g + 8 < last ? first + g + 8 : last};
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
        if (c < all.in) w[s][i] = all.weight.eight(outputs[i], c);
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

template <typename T, typename B, int kGroups, typename Weight>
void launch_few_rows(const LinearForward& call, const Weight& weight, cudaStream_t stream) {
  static_assert(kFewRows * kOutputs == kThreads);
  launch("launch of linear forward of few rows", multiply_rows_by_weight<T, B, Weight, kGroups>,
         {.blocks = {static_cast<unsigned>((call.weight.out + kOutputs - 1) / kOutputs), 1, 1},
          .shared_bytes = sizeof(float) * kWarps * kGroupRows * kGroups * kOutputs,
          .early = true},
         FewRows<T, B, Weight>{.end = linear_end<T, B>(call, nullptr),
                               .x = pointer<const B>(call.x),
                               .x_stride = call.x.stride(0),
                               .weight = weight,
                               .in = call.weight.in,
                               .rows = static_cast<int>(call.x.dim(0))},
         stream);
}

// By the form of the weight, and the number of rows.
template <typename T, typename B>
void launch_few_rows(const LinearForward& call, cudaStream_t stream) {
  const auto launch_all = [&](const auto& weight) {
    if (call.x.dim(0) <= kGroupRows) return launch_few_rows<T, B, 1>(call, weight, stream);
    launch_few_rows<T, B, 2>(call, weight, stream);
  };
  const WeightView& weight = call.weight;
  if (weight.form != WeightForm::kCodes)
    return launch_all(PlainWeight<B>{pointer<const B>(weight.tensor), weight.tensor.stride(0)});
  with_coded_rows(weight.codes, weight.in, [&]<typename Scale>(DeviceCodes<Scale> rows) {
    launch_all(CodedWeight<B, Scale>{rows});
  });
}

bool rows_in_vectors(const Tensor& matrix) {
  const auto bits = reinterpret_cast<std::uintptr_t>(matrix.raw()) |
                    static_cast<std::uintptr_t>(matrix.stride(0) * size_bytes(matrix.dtype()));
  return bits % sizeof(uint4) == 0;
}

}  // namespace

bool has_few_rows(const LinearForward& call) {
  const WeightView& weight = call.weight;
  if (size_bytes(call.x.dtype()) != 2 || call.x.dim(0) > kFewRows ||
      weight.in % kVectorWidth != 0 || !rows_in_vectors(call.x))
    return false;
  if (weight.form != WeightForm::kCodes) return rows_in_vectors(weight.tensor);
  return (weight.codes.group % kVectorWidth == 0 || weight.codes.group >= weight.in) &&
         reinterpret_cast<std::uintptr_t>(weight.codes.codes.raw()) % sizeof(uint2) == 0;
}

void multiply_few_rows(const LinearForward& call, cudaStream_t stream) {
  with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
    if constexpr (sizeof(B) == 2) {
      if (call.y.dtype() == DType::kF32) return launch_few_rows<float, B>(call, stream);
      launch_few_rows<B, B>(call, stream);
    }
  });
}

}  // namespace piton::cuda
