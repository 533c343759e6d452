// Which rank holds which part of which canonical tensor, and which rank writes it.
//
// A rank holds REGIONS: boxes of canonical tensors (a piece of a parameter), or only a run of a
// region's elements (a shard of optimizer state). Elements of a region are counted row by row. In
// the canonical tensor, a region of all columns is one stretch of bytes; a region of some columns
// has one stretch per row:
//
//   canonical [4, 6], region start [1, 2], extent [2, 3]     . . . . . .
//                                                            . . 0 1 2 .
//                                                            . . 3 4 5 .
//                                                            . . . . . .
//
// Several ranks may hold the same elements (data-parallel copies, replicated and tied parameters);
// one of them writes each element, so that the bytes are spread evenly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/parameter.h"
#include "optim/optimizer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace piton {

enum class TensorKind : std::uint8_t { kWeight, kOptimizer };

// A tensor of the checkpoint; the same on every rank.
struct CanonicalTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  TensorKind kind = TensorKind::kWeight;
};

// Elements [begin, end) of a region of a tensor.
struct TensorRun {
  Shape start;
  Shape extent;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
};

// All of a tensor of one dim or more.
inline TensorRun whole_run(const Shape& shape) {
  Shape start;
  for (int dim = 0; dim < shape.ndim(); ++dim) start.append(0);
  return {start, shape, 0, shape.elements()};
}

// Elements [begin, end) of a region, held by this rank.
struct Holding {
  CanonicalTensor tensor;
  Shape start;
  Shape extent;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Element `begin` is element `source_offset` of the caller's source number `source`.
  std::size_t source = 0;
  std::int64_t source_offset = 0;

  TensorRun run() const { return {start, extent, begin, end}; }
};

// Elements [begin, begin + size) of the parameter's local tensor.
struct LocalRun {
  const Parameter& parameter;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// The pieces of these elements. Source offsets count from `begin`. Tensors have the name `prefix` +
// canonical name and type `dtype`. No prefix: weights.
std::vector<Holding> holdings_of(const LocalRun& local, const std::string& prefix, DType dtype,
                                 std::size_t source);

// The rows (optim/cadam.h) of these elements, of tensors with one value for each row of a canonical
// tensor: [rows], or [1] for one of one dim. Source offsets count rows.
std::vector<Holding> row_holdings_of(const LocalRun& local, const std::string& prefix, DType dtype,
                                     std::size_t source);

// The holdings of a moment of a span of optimizer state.
std::vector<Holding> moment_holdings_of(const OptimizerState& state, const Moment& moment,
                                        std::size_t source);

// Calls f(offset in the canonical tensor, offset in the region, count), in elements, for each
// stretch of elements of the run, which is of a tensor with the shape `global`.
template <typename F>
void for_each_stretch(const Shape& global, const TensorRun& run, F&& f) {
  const auto& [start, extent, begin, end] = run;
  std::int64_t inner = 1;  // dims from the third on are never split
  for (int dim = 2; dim < global.ndim(); ++dim) inner *= global[dim];
  const std::int64_t global_row = global.ndim() > 1 ? global[1] * inner : 1;
  const std::int64_t row = extent.ndim() > 1 ? extent[1] * inner : 1;
  const std::int64_t first_column = start.ndim() > 1 ? start[1] * inner : 0;
  if (begin >= end) return;
  if (row == global_row) {
    f(start[0] * global_row + begin, begin, end - begin);
    return;
  }
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t line = at / row;
    const std::int64_t column = at % row;
    const std::int64_t count = std::min(row - column, end - at);
    f((start[0] + line) * global_row + first_column + column, at, count);
    at += count;
  }
}

struct WriteJob {
  std::size_t holding = 0;  // of this rank
  std::int64_t begin = 0;   // elements of its region
  std::int64_t end = 0;
};

struct WritePlan {
  std::vector<CanonicalTensor> tensors;  // of all ranks, by name; the same on every rank
  std::vector<WriteJob> jobs;            // of this rank, in the order of its holdings
};

// Collective. Asserts that the ranks agree about every tensor and that together they hold all its
// elements.
WritePlan plan_writes(const std::vector<Holding>& holdings, Communicator& ranks);

// Collective: the tensors that the ranks hold together, by name.
std::vector<CanonicalTensor> all_tensors(const std::vector<Holding>& holdings, Communicator& ranks);

// Assigns each of `sizes` to one of `workers`: largest first, always to the least loaded worker.
std::vector<int> spread(const std::vector<std::int64_t>& sizes, int workers);

}  // namespace piton
