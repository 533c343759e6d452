// What all kernel calls have in common.
//
// A call is a plain struct of tensors and settings. Besides its fields it declares
//   kName                      for messages, logs and counters
//   tensors(self, visitor)     visits every tensor: visitor(name, tensor, Access)
//   check()                    asserts shapes, dtypes, places; throws nothing
//   flops()                    multiply-adds count two; 0 for calls that only move bytes
// From tensors() follow, once for all calls: bytes moved, the test decorators (one output scaled by
// 1.01; work delayed to another address space), and the names in error messages.
//
// "Accumulate" is said per field: kWrite is overwritten whole, kUpdate is added to or changed.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/philox.h"
#include "tensor/tensor.h"

namespace piton {

enum class Access { kRead, kWrite, kUpdate };

// Which rows of the global batch a matrix [rows, channels] holds, for mask draws. Row i of the
// matrix is row first_row + i of the unsplit micro-batch; its sample is
// *consumed_samples + sample_index + row / sequence and its position row mod sequence.
struct MaskRows {
  Tensor consumed_samples;        // int64 [1], on the device: changes from step to step
  std::int64_t sample_index = 0;  // of the micro-batch's first sample in the global batch
  std::int64_t sequence = 1;      // rows a sample
  std::int64_t first_row = 0;     // > 0 under sequence parallelism
};

// Dropout of one site: kept elements are scaled by 1 / (1 - probability); probability 0 keeps all
// and draws nothing.
struct Dropout {
  double probability = 0;
  PhiloxKey key;  // site_key(seed, site)
  MaskRows rows;
};

// A weight in the form that a kernel asked for (ops/weight.h, WeightProvider).
enum class WeightForm : std::uint8_t {
  kRows,      // plain [out, in]
  kForward,   // packed by the back end for y = x W^T
  kBackward,  // packed by the back end for dx = dy W
  kCodes,     // small integers with scales, where Kernels::reads_codes()
};

enum class CodeKind : std::uint8_t {
  kInt8,  // one byte an element, two's complement: -128 .. 127
  kInt4,  // half a byte, 0 .. 15; column 2 j is in the low four bits of byte j
};

// A weight [out, in] as small integers, each row cut into groups of columns:
//   W[i, j] = scales[i, j / group] * (code[i, j] - zeros[i, j / group])
struct WeightCodes {
  CodeKind kind = CodeKind::kInt8;
  std::int64_t group = 0;  // columns that share a scale; the last group of a row may be shorter
  Tensor codes;            // u8 [out, in], kInt4: [out, (in + 1) / 2]; contiguous
  Tensor scales;           // fp32 [out, groups]; contiguous
  Tensor zeros;            // as scales, or empty: 0 for kInt8, 8 for kInt4

  bool given() const { return codes.defined(); }

  template <typename Self, typename Visitor>
  static void tensors(Self& self, Visitor&& v) {
    v("weight codes", self.codes, Access::kRead);
    v("weight scales", self.scales, Access::kRead);
    v("weight zeros", self.zeros, Access::kRead);
  }
};

struct WeightView {
  WeightForm form = WeightForm::kRows;
  // kRows: [out, in]; kForward, kBackward: opaque bytes, u8 [packed_bytes]; kCodes: empty
  Tensor tensor;
  std::int64_t out = 0;       // f
  std::int64_t in = 0;        // h
  DType dtype = DType::kF32;  // of the plain weight
  WeightCodes codes;          // of kCodes
};

}  // namespace piton
