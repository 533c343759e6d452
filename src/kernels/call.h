// Common parts of all kernel calls.
//
// A call is a plain struct of tensors and settings. In addition to its fields it declares
//   kName                      for messages, logs and counters
//   tensors(self, visitor)     visits every tensor: visitor(name, tensor, Access)
//   check()                    asserts shapes, dtypes and places (host or device); throws nothing
//   flops()                    floating-point operations, 2 for each multiply-add; 0 for calls
//                              that only move bytes
// tensors() is used, with the same code for all calls, to count the bytes moved, for the test
// decorators (one scales an output by 1.01, one runs calls late in another address space) and for
// the names in error messages.
//
// Access tells for each tensor whether it is read, overwritten completely (kWrite), or added to or
// changed in part (kUpdate).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/random/philox.h"
#include "tensor/tensor.h"

namespace piton {

enum class Access { kRead, kWrite, kUpdate };

// Which rows of the global batch a matrix [rows, channels] holds. Dropout masks are drawn from
// this. Row i of the matrix is row r = first_row + i of the unsplit micro-batch. Its sample is
// *consumed_samples + sample_index + r / sequence; its position is that of place r mod sequence.
// Column i is channel first_column + i.
struct MaskRows {
  Tensor consumed_samples;        // int64 [1], on the device: changes from step to step
  std::int64_t sample_index = 0;  // of the micro-batch's first sample in the global batch
  std::int64_t sequence = 1;      // rows per sample
  std::int64_t first_row = 0;     // > 0 under sequence parallelism
  std::int64_t first_column = 0;  // of the unsplit matrix; > 0 where tensor ranks split columns
  // Under context parallelism a rank has two stretches of a sample, of sequence / 2 rows each. What
  // is added to a place in the first or the second one gives the position in the whole sample.
  std::int64_t first_shift = 0;
  std::int64_t second_shift = 0;

  // The position in its sample of place 0 .. sequence - 1.
  std::int64_t position(std::int64_t place) const {
    return place + (place < sequence / 2 ? first_shift : second_shift);
  }
};

// Dropout at one site, a named place in the model. Elements that are kept are scaled by
// 1 / (1 - probability). Probability 0 keeps all of them and draws no random numbers.
struct Dropout {
  double probability = 0;
  PhiloxKey key;  // site_key(seed, site)
  MaskRows rows;
};

// The rows of a call of `rows` rows that a back end on the host computes. Some calls have `used`,
// int32 [1]: only the first used[0] rows count. The others are room that no result depends on, and
// a back end need neither read nor write them. Without `used` all rows count.
inline std::int64_t rows_used(const Tensor& used, std::int64_t rows) {
  if (!used.defined()) return rows;
  const std::int64_t count = used.data<std::int32_t>()[0];
  PITON_ASSERT(count >= 0 && count <= rows, "{} of {} rows are used", count, rows);
  return count;
}

// How a weight is stored for a kernel (ops/weight.h, WeightProvider).
enum class WeightForm : std::uint8_t {
  kRows,      // plain [out, in]
  kForward,   // packed by the back end for y = x W^T
  kBackward,  // packed by the back end for dx = dy W
  kCodes,     // small integers with scales; only for back ends with Kernels::reads_codes()
};

enum class CodeKind : std::uint8_t {
  kInt8,  // one byte per element, two's complement: -128 .. 127
  kInt4,  // half a byte, 0 .. 15; column 2 j is in the low four bits of byte j
  kNf4,   // as kInt4, but a code is a place in kNf4Values
};

inline bool is_half_byte(CodeKind kind) { return kind != CodeKind::kInt8; }
inline std::int64_t code_bytes(CodeKind kind, std::int64_t columns) {
  return is_half_byte(kind) ? (columns + 1) / 2 : columns;
}

// The 16 values of NF4: quantiles of the normal distribution, scaled to -1 .. 1 (Dettmers et al.
// 2023, arXiv:2305.14314, appendix E; the digits are those of bitsandbytes).
inline constexpr float kNf4Values[16] = {-1.0F,
                                         -0.6961928009986877F,
                                         -0.5250730514526367F,
                                         -0.39491748809814453F,
                                         -0.28444138169288635F,
                                         -0.18477343022823334F,
                                         -0.09105003625154495F,
                                         0.0F,
                                         0.07958029955625534F,
                                         0.16093020141124725F,
                                         0.24611230194568634F,
                                         0.33791524171829224F,
                                         0.44070982933044434F,
                                         0.5626170039176941F,
                                         0.7229568362236023F,
                                         1.0F};

// A quantized weight [out, in]: small integers (codes). Each row is divided into groups of columns,
// and each group has a scale and a zero point:
//   W[i, j] = scales[i, j / group] * (code[i, j] - zeros[i, j / group])
// and for kNf4, which has no zero points, W[i, j] = scales[i, j / group] * kNf4Values[code[i, j]].
// Instead of zero points, groups may have values that are subtracted, which zero points cannot
// express to the bit, nor where a scale is 0:
//   W[i, j] = scales[i, j / group] * code[i, j] - minima[i, j / group]
// The product is rounded before the difference; in fp32 it is exact for the formats that have
// minima (codes/code_format.h).
//
// Scales may be small integers themselves, times a number for each kScaleBlock columns, and minima
// then too: scales[i, g] means scales[i, g] * block_scales[i, g * group / kScaleBlock]. In
// the formats that have them (codes/code_format.h) this product is exact in fp32.
inline constexpr std::int64_t kScaleBlock = 256;

struct WeightCodes {
  CodeKind kind = CodeKind::kInt8;
  std::int64_t group = 0;  // columns of a group; the last group of a row may have fewer
  Tensor codes;            // u8 [out, code_bytes(kind, in)]; contiguous
  Tensor scales;           // fp32, fp16 or, with block_scales, u8 with the bits of signed bytes
                           // [out, groups]; contiguous
  Tensor zeros;            // fp32 [out, groups]; empty means 0 for kInt8, 8 for kInt4
  Tensor minima;           // fp32, or as the scales u8 [out, groups]; or empty. Not for kNf4, nor
                           // with zeros
  Tensor block_scales;     // fp32 [out, in / kScaleBlock], or empty
  Tensor block_minima;     // the same; with block_scales and minima

  bool given() const { return codes.defined(); }

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("weight codes", self.codes, Access::kRead);
    v("weight scales", self.scales, Access::kRead);
    v("weight zeros", self.zeros, Access::kRead);
    v("weight minima", self.minima, Access::kRead);
    v("weight block scales", self.block_scales, Access::kRead);
    v("weight block minima", self.block_minima, Access::kRead);
  }
};

struct WeightView {
  WeightForm form = WeightForm::kRows;
  // kRows: [out, in]; kForward, kBackward: u8 [packed_bytes] in the back end's own layout; kCodes:
  // empty. Of m matrices [m out, in], or each of them packed, one after another.
  Tensor tensor;
  std::int64_t out = 0;       // f
  std::int64_t in = 0;        // h
  DType dtype = DType::kF32;  // of the plain weight
  WeightCodes codes;          // only for kCodes, of m matrices [m out, in]
  std::int64_t matrices = 1;  // m: of several experts (kernels/linear.h)
};

}  // namespace piton
