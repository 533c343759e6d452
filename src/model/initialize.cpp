#include "model/initialize.h"

#include <array>

#include "base/philox.h"

namespace piton {
namespace {

void store(const Tensor& tensor, std::int64_t at, double value) {
  switch (tensor.dtype()) {
    case DType::kF64: tensor.data<double>()[at] = value; return;
    case DType::kF32: tensor.data<float>()[at] = static_cast<float>(value); return;
    case DType::kBF16: tensor.data<BFloat16>()[at] = to_bfloat16(static_cast<float>(value)); return;
    default: PITON_ASSERT(false, "no weights of {}", name(tensor.dtype()));
  }
}

// One row of the piece: canonical indices first, first + 1, ...
void fill_row(const Tensor& rows, std::int64_t at, std::int64_t columns, std::int64_t first,
              const Initialization& initialization, PhiloxKey key) {
  if (initialization.kind != Initialization::Kind::kNormal) {
    const double value = initialization.kind == Initialization::Kind::kOne ? 1 : 0;
    for (std::int64_t column = 0; column < columns; ++column) store(rows, at + column, value);
    return;
  }
  std::array<double, 4> block{};
  for (std::int64_t column = 0; column < columns; ++column) {
    const auto index = static_cast<std::uint64_t>(first + column);
    if (column == 0 || index % 4 == 0) block = philox_normal4(key, index / 4);
    store(rows, at + column, initialization.deviation * block[index % 4]);
  }
}

}  // namespace

Tensor initial_rows(const Parameter& parameter, std::uint64_t seed, ThreadPool& threads) {
  Tensor rows = host_tensor(parameter.dtype, parameter.shape);
  const std::int64_t columns = parameter.shape.ndim() > 1 ? parameter.shape[1] : 1;
  for (const Piece& piece : parameter.pieces) {
    const PhiloxKey key = site_key(seed, piece.name);
    if (piece.extent.ndim() == 1) {
      fill_row(rows, piece.local_row, piece.extent[0], piece.start[0], piece.initialization, key);
      continue;
    }
    threads.run(piece.extent[0], [&](std::int64_t row) {
      fill_row(rows, (piece.local_row + row) * columns, columns,
               (piece.start[0] + row) * piece.global[1] + piece.start[1], piece.initialization, key);
    });
  }
  return rows;
}

}  // namespace piton
