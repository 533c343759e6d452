#include "model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/random/philox.h"
#include "tensor/rounded.h"

namespace piton {
namespace {

constexpr std::int64_t kChunk = 1024;  // normals drawn at once

// Word index mod 4 of block index / 4 as a number between -1 and 1, without these, and what
// `value` makes of it.
template <typename T, typename Value>
void fill_uniform(T* to, std::int64_t count, std::int64_t first, PhiloxKey key,
                  const Value& value) {
  PhiloxBlock words{};
  for (std::int64_t index = first; index < first + count; ++index) {
    if (index == first || index % 4 == 0) {
      const auto block = static_cast<std::uint64_t>(index / 4);
      words = philox(
          key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 1});
    }
    const double turn = (words[static_cast<std::size_t>(index % 4)] + 0.5) * 0x1p-31 - 1;
    to[index - first] = rounded<T>(value(turn));
  }
}

// `count` canonical indices from `first` on.
template <typename T>
void fill(T* to, std::int64_t count, std::int64_t first, const Initialization& initialization,
          PhiloxKey key) {
  if (initialization.kind == Initialization::Kind::kXavier ||
      initialization.kind == Initialization::Kind::kUniform) {
    PITON_ASSERT(initialization.bound > 0, "a uniform tensor without a bound");
    return fill_uniform(to, count, first, key,
                        [&](double turn) { return initialization.bound * turn; });
  }
  if (initialization.kind == Initialization::Kind::kLogUniform) {
    const double half = (initialization.bound - initialization.lowest) / 2;
    PITON_ASSERT(half > 0 && initialization.lowest > 0, "logarithms of numbers from {} to {}",
                 initialization.lowest, initialization.bound);
    return fill_uniform(to, count, first, key, [&](double turn) {
      return std::log(initialization.lowest + half * (turn + 1));
    });
  }
  if (initialization.kind == Initialization::Kind::kSoftplusLogUniform) {
    PITON_ASSERT(initialization.lowest > 0 && initialization.bound > initialization.lowest,
                 "steps from {} to {}", initialization.lowest, initialization.bound);
    const double least = std::log(initialization.lowest);
    const double half = (std::log(initialization.bound) - least) / 2;
    return fill_uniform(to, count, first, key, [&](double turn) {
      const double step = std::exp(least + half * (turn + 1));
      return step + std::log(-std::expm1(-step));  // the inverse of log(1 + exp(x))
    });
  }
  if (initialization.kind != Initialization::Kind::kNormal) {
    std::fill(to, to + count,
              rounded<T>(initialization.kind == Initialization::Kind::kOne ? 1.0 : 0.0));
    return;
  }
  std::array<double, kChunk> normals;
  const std::int64_t end = first + count;
  for (std::int64_t block = first / 4; block * 4 < end; block += kChunk / 4) {
    const std::int64_t blocks = std::min(kChunk / 4, (end - block * 4 + 3) / 4);
    philox_normals(key, static_cast<std::uint64_t>(block),
                   {normals.data(), static_cast<std::size_t>(4 * blocks)});
    const std::int64_t from = std::max(first, block * 4);
    const std::int64_t stop = std::min(end, (block + blocks) * 4);
    for (std::int64_t index = from; index < stop; ++index) {
      to[index - first] = rounded<T>(initialization.deviation * normals[index - block * 4]);
    }
  }
}

// One row of a piece.
struct PieceRow {
  std::int64_t at = 0;  // its first element in the local tensor
  std::int64_t columns = 0;
  std::int64_t first = 0;  // canonical index of that element; first + 1, ... follow
};

void fill_row(const Tensor& rows, const PieceRow& row, const Initialization& initialization,
              PhiloxKey key) {
  switch (rows.dtype()) {
    case DType::kF64:
      return fill(rows.data<double>() + row.at, row.columns, row.first, initialization, key);
    case DType::kF32:
      return fill(rows.data<float>() + row.at, row.columns, row.first, initialization, key);
    case DType::kBF16:
      return fill(rows.data<BFloat16>() + row.at, row.columns, row.first, initialization, key);
    case DType::kF16:
      return fill(rows.data<Float16>() + row.at, row.columns, row.first, initialization, key);
    default:
      PITON_ASSERT(false, "no weights of {}", name(rows.dtype()));
  }
}

}  // namespace

void write_initial_rows(const Parameter& parameter, std::uint64_t seed, ThreadPool& threads,
                        const Tensor& rows) {
  PITON_ASSERT(rows.shape() == parameter.shape && rows.dtype() == parameter.dtype &&
               rows.contiguous());
  const std::int64_t columns = parameter.shape.ndim() > 1 ? parameter.shape[1] : 1;
  std::int64_t covered = 0;
  for (const Piece& piece : parameter.pieces) covered += piece.extent.elements();
  if (covered < rows.elements()) std::memset(rows.raw(), 0, static_cast<std::size_t>(rows.bytes()));
  for (const Piece& piece : parameter.pieces) {
    const PhiloxKey key = site_key(seed, piece.name);
    if (piece.extent.ndim() == 1) {
      fill_row(rows, {piece.local_row, piece.extent[0], piece.start[0]}, piece.initialization, key);
      continue;
    }
    threads.run(piece.extent[0], [&](std::int64_t row) {
      fill_row(rows,
               {.at = (piece.local_row + row) * columns,
                .columns = columns,
                .first = (piece.start[0] + row) * piece.global[1] + piece.start[1]},
               piece.initialization, key);
    });
  }
}

}  // namespace piton
