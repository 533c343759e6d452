// Rounds bf16 to FP8. A block reads 128 x 128 numbers, which are whole blocks of any scale, into
// shared memory, and writes their codes in rows or in columns. The scale of a whole factor is that
// of two launches before: the largest size of each stretch of rows, and of all.
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/float8/float8_factor.h"
#include "kernels/cuda/float_bits.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/linear.h"

namespace piton::cuda {
namespace {

constexpr int kTile = 128;
static_assert(kTile == kFloat8Block);
constexpr int kTileStride = kTile + 2;  // numbers; columns are in different banks
constexpr int kCodesAtOnce = 16;
constexpr std::int64_t kAlignment = 16;  // of both sizes of a factor
constexpr unsigned kMostPartials = 1024;

// bf16 is the upper half of an fp32.
__device__ __forceinline__ float number_of(unsigned short bits) {
  return float_of(static_cast<unsigned>(bits) << 16);
}
__device__ __forceinline__ float finite_size(unsigned short bits) {
  const unsigned size = bits & 0x7FFFU;
  return size < 0x7F80U ? float_of(size << 16) : 0;
}

// What device code needs of tensor/float8.h.
struct Format {
  unsigned fraction;  // bits
  unsigned bias;
  float largest;
};

// float8_scale()
__device__ __forceinline__ float scale_of(float size, float largest, bool power_of_two) {
  if (!(size > 0)) return 1;
  constexpr float kLargestFloat = 3.402823466e+38F;
  float scale = largest / size;
  if (!(scale <= kLargestFloat)) scale = kLargestFloat;
  return power_of_two ? float_of(bits_of(scale) & 0x7F800000U) : scale;
}

// The code of rounded_to_float8().
__device__ __forceinline__ unsigned code_of(float x, const Format& format) {
  const unsigned bits = bits_of(x);
  const unsigned size = bits & 0x7FFFFFFFU;
  const unsigned sign = bits >> 31 << 7;
  if (size >= 0x7F800000U) return sign | 0x7FU;  // NaN
  const unsigned smallest = (128 - format.bias) << 23;
  unsigned exponent = size & 0x7F800000U;
  if (exponent < smallest) exponent = smallest;
  constexpr unsigned kFar = 227U << 23;  // 2^100
  if (exponent > kFar) exponent = kFar;
  const float shift = float_of(exponent + ((23 - format.fraction) << 23));
  float rounded = (float_of(size) + shift) - shift;
  if (!(rounded < format.largest)) rounded = format.largest;
  if (rounded < float_of(smallest)) {
    // A whole number of the smallest ones, 2^(1 - bias - fraction).
    const float inverse = float_of((126 + format.bias + format.fraction) << 23);
    return sign | static_cast<unsigned>(rounded * inverse);
  }
  return sign |
         ((bits_of(rounded) >> (23 - format.fraction)) - ((127 - format.bias) << format.fraction));
}

struct LargestSizes {
  StridedRows<const unsigned short> x;
  std::int64_t rows;
  std::int64_t columns;
  float* partial;  // [blocks]
};

__global__ void __launch_bounds__(kThreads, kBlocks) largest_sizes(LargestSizes all) {
  float most = 0;
  for (std::int64_t row = blockIdx.x; row < all.rows; row += gridDim.x) {
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < all.columns; i += kThreads) {
      most = Largest{}(most, finite_size(all.x.at(row, i)));
    }
  }
  most = reduced(most, shared_array<float>(), Largest{});
  if (threadIdx.x == 0) all.partial[blockIdx.x] = most;
}

struct WholeScale {
  const float* partial;
  std::int64_t partials;
  float largest;   // of the format
  float* scale;    // [1]
  float* inverse;  // [1]
};

__global__ void __launch_bounds__(kThreads, kBlocks) whole_scale(WholeScale all) {
  float most = 0;
  for (std::int64_t i = threadIdx.x; i < all.partials; i += kThreads) {
    most = Largest{}(most, all.partial[i]);
  }
  most = reduced(most, shared_array<float>(), Largest{});
  if (threadIdx.x != 0) return;
  *all.scale = scale_of(most, all.largest, false);
  *all.inverse = 1 / *all.scale;
}

struct Codes {
  StridedRows<const unsigned short> x;
  std::int64_t rows;     // of x
  std::int64_t columns;  // of x
  unsigned char* codes;  // [code_rows, depth]
  std::int64_t code_rows;
  std::int64_t depth;
  const float* scale;  // of a whole factor
  float* inverses;
  std::int64_t inverse_stride;
  Format format;
  Float8Scales scales;
  bool transposed;
};

// Of the shared memory of a block.
struct Tile {
  unsigned short* numbers;  // [kTile, kTileStride]
  float* scales;            // [kTile], of rows of codes
  float* parts;             // [kWarps]

  // Number `k` along the sum in row `line` of codes.
  __device__ unsigned short at(const Codes& all, int line, int k) const {
    return numbers[all.transposed ? k * kTileStride + line : line * kTileStride + k];
  }
};
constexpr std::size_t kTileBytes =
    kTile * kTileStride * sizeof(unsigned short) + (kTile + kWarps) * sizeof(float);

// Sets the scales of the lines, and writes what they are the inverses of. `line`, `block`: the
// first row of codes of this tile, and its place along the sum.
__device__ void find_scales(const Codes& all, const Tile& tile, std::int64_t line,
                            std::int64_t block) {
  const int thread = static_cast<int>(threadIdx.x);
  if (all.scales == Float8Scales::kRows) {
    if (thread >= kTile) return;
    float most = 0;
#pragma unroll 8
    for (int k = 0; k < kTile; ++k) most = Largest{}(most, finite_size(tile.at(all, thread, k)));
    const float scale = scale_of(most, all.format.largest, true);
    tile.scales[thread] = scale;
    if (line + thread < all.code_rows)
      all.inverses[block * all.inverse_stride + line + thread] = 1 / scale;
    return;
  }
  float scale = 0;
  if (all.scales == Float8Scales::kSquares) {
    float most = 0;
#pragma unroll 8
    for (int i = thread; i < kTile * kTile; i += kThreads) {
      most = Largest{}(most, finite_size(tile.numbers[i / kTile * kTileStride + i % kTile]));
    }
    scale = scale_of(reduced(most, tile.parts, Largest{}), all.format.largest, true);
    if (thread == 0) all.inverses[line / kTile * all.inverse_stride + block] = 1 / scale;
  } else {
    scale = *all.scale;
  }
  if (thread < kTile) tile.scales[thread] = scale;
}

__global__ void __launch_bounds__(kThreads, kBlocks) write_codes(Codes all) {
  Tile tile{shared_array<unsigned short>()};
  tile.scales = shared_array<float>(kTile * kTileStride * sizeof(unsigned short));
  tile.parts = tile.scales + kTile;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kTile;
  const std::int64_t first_column = std::int64_t{blockIdx.x} * kTile;
#pragma unroll 8
  for (int i = thread; i < kTile * kTile; i += kThreads) {
    const std::int64_t row = first_row + i / kTile;
    const std::int64_t column = first_column + i % kTile;
    const bool inside = row < all.rows && column < all.columns;
    tile.numbers[i / kTile * kTileStride + i % kTile] = inside ? all.x.at(row, column) : 0;
  }
  __syncthreads();
  const std::int64_t line = all.transposed ? first_column : first_row;
  const std::int64_t k = all.transposed ? first_row : first_column;
  find_scales(all, tile, line, k / kTile);
  __syncthreads();
  constexpr int kInLine = kTile / kCodesAtOnce;
  for (int i = thread; i < kTile * kInLine; i += kThreads) {
    const int own = i / kInLine;
    const int first = i % kInLine * kCodesAtOnce;
    if (line + own >= all.code_rows || k + first >= all.depth) continue;
    unsigned words[kCodesAtOnce / 4] = {};
#pragma unroll
    for (int e = 0; e < kCodesAtOnce; ++e) {
      const float x = number_of(tile.at(all, own, first + e)) * tile.scales[own];
      words[e / 4] |= code_of(x, all.format) << (e % 4 * 8);
    }
    uint4 codes;
    memcpy(&codes, words, sizeof codes);
    *reinterpret_cast<uint4*>(all.codes + (line + own) * all.depth + k + first) = codes;
  }
}

std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
std::int64_t blocks_of(std::int64_t n) { return (n + kTile - 1) / kTile; }

Shape shape_of_inverses(const Shape& codes, Float8Scales scales) {
  switch (scales) {
    case Float8Scales::kRows:
      return {blocks_of(codes[1]), codes[0]};
    case Float8Scales::kSquares:
      return {blocks_of(codes[0]), up(blocks_of(codes[1]), 4)};
    default:
      return {1};
  }
}

}  // namespace

Float8Factor float8_factor(const Tensor& x, const FactorForm& form, const CallContext& context) {
  PITON_ASSERT(x.dtype() == DType::kBF16, "cuda: {} to FP8", name(x.dtype()));
  const std::int64_t rows = x.dim(form.transposed ? 1 : 0);
  const std::int64_t depth = x.dim(form.transposed ? 0 : 1);
  const auto memory = [&](DType dtype, const Shape& shape) {
    return scratch(dtype, shape, context);
  };
  Float8Factor factor{.codes = memory(DType::kU8, {up(rows, kAlignment), up(depth, kAlignment)}),
                      .format = form.format,
                      .scales = form.scales};
  factor.inverses = memory(DType::kF32, shape_of_inverses(factor.codes.shape(), form.scales));
  const bool e4m3 = form.format == Float8Format::kE4M3;
  const Format format{e4m3 ? 3U : 2U, e4m3 ? 7U : 15U, largest_float8(form.format)};
  const auto numbers = strided_rows<const unsigned short>(x);
  Tensor scale;
  if (form.scales == Float8Scales::kWhole) {
    scale = memory(DType::kF32, {1});
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(x.dim(0), kMostPartials));
    const Tensor partial = memory(DType::kF32, {blocks});
    const std::size_t shared = kWarps * sizeof(float);
    launch("launch of the largest size", largest_sizes,
           {.blocks = {blocks, 1, 1}, .shared_bytes = shared},
           LargestSizes{numbers, x.dim(0), x.dim(1), pointer<float>(partial)}, context.stream);
    launch("launch of the scale of a factor", whole_scale,
           {.blocks = {1, 1, 1}, .shared_bytes = shared},
           WholeScale{pointer<const float>(partial), blocks, format.largest, pointer<float>(scale),
                      pointer<float>(factor.inverses)},
           context.stream);
  }
  launch("launch of codes in FP8", write_codes,
         {.blocks = {static_cast<unsigned>(blocks_of(x.dim(1))),
                     static_cast<unsigned>(blocks_of(x.dim(0))), 1},
          .shared_bytes = kTileBytes},
         Codes{.x = numbers,
               .rows = x.dim(0),
               .columns = x.dim(1),
               .codes = pointer<unsigned char>(factor.codes),
               .code_rows = factor.codes.dim(0),
               .depth = factor.codes.dim(1),
               .scale = pointer<const float>(scale),
               .inverses = pointer<float>(factor.inverses),
               .inverse_stride = factor.inverses.dim(-1),
               .format = format,
               .scales = form.scales,
               .transposed = form.transposed},
         context.stream);
  return factor;
}

}  // namespace piton::cuda
