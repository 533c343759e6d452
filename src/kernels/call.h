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
};

struct WeightView {
  WeightForm form = WeightForm::kRows;
  Tensor tensor;              // kRows: [out, in]; otherwise opaque bytes, u8 [packed_bytes]
  std::int64_t out = 0;       // f
  std::int64_t in = 0;        // h
  DType dtype = DType::kF32;  // of the plain weight
};

}  // namespace piton
