#include "nn/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace piton {
namespace {

Shape sizes(std::int64_t rows, std::int64_t columns) {
  return columns > 0 ? Shape{rows, columns} : Shape{rows};
}

Parameter base_parameter(const Shard& shard, std::string name, Shape shape) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.dtype = shard.dtype;
  parameter.shape = shape;
  // Ranks along these axes process different tokens.
  parameter.placement[Axis::kData].gradient_is_partial = true;
  parameter.placement[Axis::kContext].gradient_is_partial = true;
  parameter.placement[Axis::kExpert].gradient_is_partial = true;
  return parameter;
}

// Glorot and Bengio 2010: sqrt(6 / (in + out)) of the matrix that Megatron has, in which query, key
// and value, or gate and up, are one. Whole, so that it does not depend on the layout.
Initialization with_bound(Initialization initialization, std::int64_t out, std::int64_t in) {
  if (initialization.kind == Initialization::Kind::kXavier)
    initialization.bound = std::sqrt(6.0 / static_cast<double>(in + out));
  return initialization;
}

// How many ranks have a share of each part, which of them this is, and the columns.
struct PartShares {
  int ranks = 1;
  int rank = 0;
  std::int64_t in = 0;
};

// A local tensor of this rank's rows of each part, one after another.
Parameter parameter_of_parts(const Shard& shard, std::string name,
                             const std::vector<RowPart>& parts, const PartShares& shares,
                             Initialization initialization) {
  const auto [t, rank, in] = shares;
  std::int64_t rows = 0;
  std::int64_t all_rows = 0;
  for (const RowPart& part : parts) all_rows += part.out;
  initialization = with_bound(initialization, all_rows, in);
  std::vector<Piece> pieces;
  for (const RowPart& part : parts) {
    PITON_ASSERT(part.out % t == 0, "{}: {} rows over {} ranks", part.name, part.out, t);
    const std::int64_t share = part.out / t;
    Shape start = sizes(0, in);
    start[0] = rank * share;
    if (in > 0) start[1] = 0;
    pieces.push_back({.name = part.name,
                      .global = sizes(part.out, in),
                      .start = start,
                      .extent = sizes(share, in),
                      .local_row = rows,
                      .initialization = initialization,
                      .decays = in > 0});
    rows += share;
  }
  Parameter parameter = base_parameter(shard, std::move(name), sizes(rows, in));
  parameter.pieces = std::move(pieces);
  return parameter;
}

}  // namespace

Parameter row_split_parameter(const Shard& shard, std::string name,
                              const std::vector<RowPart>& parts, std::int64_t in,
                              Initialization initialization) {
  Parameter parameter =
      parameter_of_parts(shard, std::move(name), parts,
                         {.ranks = shard.size(), .rank = shard.rank(), .in = in}, initialization);
  parameter.placement[Axis::kTensor] = {.kind = AxisPlacement::Kind::kSplit, .dim = 0};
  return parameter;
}

Parameter shared_parameter(const Shard& shard, std::string name, const std::vector<RowPart>& parts,
                           std::int64_t in, Initialization initialization) {
  Parameter parameter =
      parameter_of_parts(shard, std::move(name), parts, {.in = in}, initialization);
  parameter.placement[Axis::kTensor].gradient_is_partial = shard.size() > 1;
  return parameter;
}

Parameter column_split_parameter(const Shard& shard, std::string name, std::int64_t out,
                                 std::int64_t in, Initialization initialization) {
  PITON_ASSERT(in % shard.size() == 0, "{}: {} columns over {} ranks", name, in, shard.size());
  const std::int64_t share = in / shard.size();
  Parameter parameter = base_parameter(shard, name, {out, share});
  parameter.placement[Axis::kTensor] = {.kind = AxisPlacement::Kind::kSplit, .dim = 1};
  parameter.pieces.push_back({.name = std::move(name),
                              .global = {out, in},
                              .start = {0, shard.rank() * share},
                              .extent = {out, share},
                              .initialization = with_bound(initialization, out, in),
                              .decays = true});
  return parameter;
}

Parameter replicated_parameter(const Shard& shard, std::string name, std::int64_t size,
                               std::int64_t in, Initialization initialization) {
  Parameter parameter = base_parameter(shard, name, sizes(size, in));
  parameter.placement[Axis::kTensor].gradient_is_partial = shard.splits_sequence();
  Shape start = sizes(0, in);
  for (int dim = 0; dim < start.ndim(); ++dim) start[dim] = 0;
  parameter.pieces.push_back({.name = std::move(name),
                              .global = sizes(size, in),
                              .start = start,
                              .extent = sizes(size, in),
                              .initialization = with_bound(initialization, size, in),
                              .decays = in > 0});
  return parameter;
}

Parameter stacked(std::string name, const std::vector<Parameter>& matrices) {
  Parameter all = matrices.at(0);
  all.name = std::move(name);
  all.shape[0] *= std::ssize(matrices);
  all.matrices = std::ssize(matrices);
  all.pieces.clear();
  std::int64_t rows = 0;
  for (const Parameter& matrix : matrices) {
    PITON_ASSERT(matrix.shape == matrices[0].shape, "{}: matrices of two shapes", all.name);
    for (Piece piece : matrix.pieces) {
      piece.local_row += rows;
      all.pieces.push_back(std::move(piece));
    }
    rows += matrix.shape[0];
  }
  return all;
}

std::int64_t Vocabulary::valid(const Shard& shard) const {
  return std::clamp<std::int64_t>(size - begin(shard), 0, padded / shard.size());
}

void tie_over_stages(Parameter& parameter, const std::vector<int>& stages) {
  if (stages.size() < 2) return;
  parameter.tied_stages = stages;
  parameter.placement[Axis::kPipeline].gradient_is_partial = true;
}

Parameter vocabulary_parameter(const Shard& shard, std::string name, const Vocabulary& vocabulary,
                               std::int64_t in, Initialization initialization) {
  const auto [size, padded] = vocabulary;
  PITON_ASSERT(padded % shard.size() == 0 && padded >= size, "{}: {} padded rows", name, padded);
  const std::int64_t share = padded / shard.size();
  const std::int64_t begin = std::min(size, shard.rank() * share);
  const std::int64_t end = std::min(size, (shard.rank() + 1) * share);
  Parameter parameter = base_parameter(shard, name, sizes(share, in));
  parameter.is_table = in > 0;
  Shape start = sizes(begin, in);
  if (in > 0) start[1] = 0;
  parameter.placement[Axis::kTensor] = {.kind = AxisPlacement::Kind::kSplit, .dim = 0};
  parameter.pieces.push_back({.name = std::move(name),
                              .global = sizes(size, in),
                              .start = start,
                              .extent = sizes(end - begin, in),
                              .initialization = with_bound(initialization, size, in),
                              .decays = in > 0});
  return parameter;
}

}  // namespace piton
