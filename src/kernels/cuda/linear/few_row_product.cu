// Products of few rows on tensor cores, with W as the left matrix: 16 outputs by 8 rows of x. The
// elements of a sum may have any order as long as both matrices have the same one. So a lane reads
// 16 consecutive bytes of a row, in W and in x, and uses them as its pairs of two fragments
// (tensor_cores.cuh): nothing passes through shared memory.
#include "kernels/cuda/attention/tensor_cores.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear/few_row_product.h"
#include "kernels/cuda/linear/linear_end.cuh"
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

// What a block makes of its sums, [rows, kOutputs] with one in each thread: the end of a linear.
// `row_of` is the row of W that output `i` of block `block` is the product with, `x_begin` where
// the rows of x begin.
template <typename T, typename B>
struct PlainEnd {
  LinearEnd<T, B> end;

  __device__ std::int64_t row_of(std::int64_t block, int i) const { return block * kOutputs + i; }
  __device__ bool has(std::int64_t block, int i) const { return row_of(block, i) < end.out; }
  __device__ std::int64_t x_begin() const { return 0; }
  __device__ void finish(std::int64_t block, int row, int rows, float sum) const {
    const int i = static_cast<int>(threadIdx.x) % kOutputs;
    if (row < rows && has(block, i)) end.finish(row, row_of(block, i), sum);
  }
};

// The same of a gated one: the first half of the outputs are of the gate, and the others of the
// channels of `up` that it multiplies.
template <typename B>
struct GatedEnd {
  static constexpr int kPairs = kOutputs / 2;
  B* y;
  const B* bias;  // or nullptr
  std::int64_t y_stride;
  std::int64_t out;  // of y
  ActivationKind kind;
  BoundedGate<float> bounds;

  __device__ std::int64_t row_of(std::int64_t block, int i) const {
    return i / kPairs * out + block * kPairs + i % kPairs;
  }
  __device__ bool has(std::int64_t block, int i) const { return block * kPairs + i % kPairs < out; }
  __device__ std::int64_t x_begin() const { return 0; }
  __device__ void finish(std::int64_t block, int row, int rows, float sum) const {
    const int i = static_cast<int>(threadIdx.x) % kOutputs;
    const bool given = row < rows && has(block, i);
    if (given && bias != nullptr) sum += widen(bias[row_of(block, i)]);
    const float rounded = widen(narrow<B>(sum));
    const float up = __shfl_xor_sync(kAllLanes, rounded, kPairs);
    if (given && i < kPairs)
      y[row * y_stride + row_of(block, i)] = narrow<B>(gated(kind, bounds, rounded, up));
  }
};

// A plain end in each of several parts, whose number is the second index of a block.
template <typename B>
struct PartEnd {
  B* y;
  std::int64_t y_stride;
  std::int64_t out;
  ProductParts parts;

  __device__ std::int64_t row_of(std::int64_t block, int i) const {
    return blockIdx.y * parts.right + block * kOutputs + i;
  }
  __device__ bool has(std::int64_t block, int i) const { return block * kOutputs + i < out; }
  __device__ std::int64_t x_begin() const { return blockIdx.y * parts.left; }
  __device__ void finish(std::int64_t block, int row, int rows, float sum) const {
    const int i = static_cast<int>(threadIdx.x) % kOutputs;
    if (row < rows && has(block, i))
      y[blockIdx.y * parts.y + row * y_stride + block * kOutputs + i] = narrow<B>(sum);
  }
};

template <typename End, typename B, typename Weight>
struct FewRows {
  End end;
  const B* x;
  std::int64_t x_stride;
  Weight weight;
  std::int64_t in;
  int rows;
};

// Reads the weights of a block into the cache while the kernel in front still runs.
template <typename End, typename B, typename Weight>
__device__ void prefetch_weights(const FewRows<End, B, Weight>& all) {
  constexpr std::int64_t kLine = 128;
  const std::int64_t bytes = all.weight.row_bytes(all.in);
  const std::int64_t lines = (bytes + kLine - 1) / kLine;
  for (std::int64_t i = threadIdx.x; i < kOutputs * lines; i += kThreads) {
    const int output = static_cast<int>(i / lines);
    if (!all.end.has(blockIdx.x, output)) continue;
    prefetch(all.weight.bytes(all.end.row_of(blockIdx.x, output), i % lines * kLine));
  }
}

// A block computes kOutputs outputs of all rows. Its warps take the parts of the columns in turn,
// and are added in order.
// Codes need the registers of two blocks.
template <typename End, typename B, typename Weight, int kGroups>
__global__ void __launch_bounds__(kThreads, kGroups == 1 && !Weight::kCoded ? 3 : 2)
    multiply_rows_by_weight(FewRows<End, B, Weight> all) {
  const int warp = static_cast<int>(threadIdx.x / kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int g = lane / 4;
  prefetch_weights(all);
  wait_for_previous();
  let_next_start();
  // Outputs after the last one are computed from the block's first weights, and not stored.
  std::int64_t outputs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int output = g + 8 * i;
    outputs[i] = all.end.row_of(blockIdx.x, all.end.has(blockIdx.x, output) ? output : 0);
  }
  const B* x_rows = all.x + all.end.x_begin();
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
          x[s][i] = *reinterpret_cast<const uint4*>(x_rows + row * all.x_stride + c);
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
  float sum = 0;
  if (row < kRows) {
    for (int other = 0; other < kWarps; ++other)
      sum += parts[other * kRows * kOutputs + static_cast<int>(threadIdx.x)];
  }
  all.end.finish(blockIdx.x, row, all.rows, sum);
}

// Of a launch.
struct Outputs {
  std::int64_t count;
  std::int64_t parts = 1;
};

template <int kGroups, typename B, typename End, typename Weight>
void launch_few_rows(const Tensor& x, const End& end, const Weight& weight, const Outputs& outputs,
                     cudaStream_t stream) {
  static_assert(kFewRows * kOutputs == kThreads);
  launch("launch of linear forward of few rows", multiply_rows_by_weight<End, B, Weight, kGroups>,
         {.blocks = {static_cast<unsigned>((outputs.count + kOutputs - 1) / kOutputs),
                     static_cast<unsigned>(outputs.parts), 1},
          .shared_bytes = sizeof(float) * kWarps * kGroupRows * kGroups * kOutputs,
          .early = true},
         FewRows<End, B, Weight>{.end = end,
                                 .x = pointer<const B>(x),
                                 .x_stride = x.stride(0),
                                 .weight = weight,
                                 .in = x.dim(1),
                                 .rows = static_cast<int>(x.dim(0))},
         stream);
}

// By the form of the weight, and the number of rows.
template <typename B, typename End>
void launch_few_rows(const Tensor& x, const WeightView& weight, const End& end, cudaStream_t stream,
                     std::int64_t parts = 1) {
  const Outputs outputs{weight.out, parts};
  const auto launch_all = [&](const auto& of) {
    if (x.dim(0) <= kGroupRows) return launch_few_rows<1, B>(x, end, of, outputs, stream);
    launch_few_rows<2, B>(x, end, of, outputs, stream);
  };
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

// Of x and W.
bool are_few_rows(const Tensor& x, const WeightView& weight) {
  if (size_bytes(x.dtype()) != 2 || x.dim(0) > kFewRows || weight.in % kVectorWidth != 0 ||
      !rows_in_vectors(x))
    return false;
  if (weight.form != WeightForm::kCodes) return rows_in_vectors(weight.tensor);
  return (weight.codes.group % kVectorWidth == 0 || weight.codes.group >= weight.in) &&
         reinterpret_cast<std::uintptr_t>(weight.codes.codes.raw()) % sizeof(uint2) == 0;
}

}  // namespace

bool has_few_rows(const LinearForward& call) { return are_few_rows(call.x, call.weight); }
bool has_few_rows(const GatedLinear& call) { return are_few_rows(call.x, call.weight); }

void multiply_few_rows(const LinearForward& call, cudaStream_t stream) {
  with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
    if constexpr (sizeof(B) == 2) {
      const auto launch_all = [&]<typename T>(std::type_identity<T>) {
        launch_few_rows<B>(call.x, call.weight, PlainEnd<T, B>{linear_end<T, B>(call, nullptr)},
                           stream);
      };
      if (call.y.dtype() == DType::kF32) return launch_all(std::type_identity<float>{});
      launch_all(std::type_identity<B>{});
    }
  });
}

void multiply_few_rows(const LinearForward& call, const ProductParts& parts, cudaStream_t stream) {
  with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
    if constexpr (sizeof(B) == 2) {
      launch_few_rows<B>(call.x, call.weight,
                         PartEnd<B>{.y = pointer<B>(call.y),
                                    .y_stride = call.y.stride(0),
                                    .out = call.weight.out,
                                    .parts = parts},
                         stream, parts.count);
    }
  });
}

void multiply_few_rows(const GatedLinear& call, cudaStream_t stream) {
  with_floating(call.x.dtype(), [&]<typename B>(std::type_identity<B>) {
    if constexpr (sizeof(B) == 2) {
      launch_few_rows<B>(call.x, call.weight,
                         GatedEnd<B>{.y = pointer<B>(call.y),
                                     .bias = pointer<const B>(call.bias),
                                     .y_stride = call.y.stride(0),
                                     .out = call.weight.out / 2,
                                     .kind = call.kind,
                                     .bounds = bounded_gate<float>(call.gate)},
                         stream);
    }
  });
}

}  // namespace piton::cuda
