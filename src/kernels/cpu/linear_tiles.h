// Implementations of y = a b + bias with its epilogue, tile by tile: in fp32, by the bf16 dot
// product, and by bf16 tile products.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cpu/context.h"

namespace piton::cpu {

inline constexpr std::int64_t kRowTile = 128;

inline std::int64_t aligned(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }
inline std::int64_t up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }
inline std::int64_t tiles(std::int64_t n, std::int64_t tile) { return (n + tile - 1) / tile; }
inline std::int64_t width_of(Type type) { return type == Type::kF32 ? 4 : 2; }

inline std::byte* at(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return tensor.raw() + (row * tensor.stride(0) + column) * size_bytes(tensor.dtype());
}

// The factor b of y = a b: W^T forward, W backward.
struct Right {
  const WeightView& weight;
  bool backward;
  std::int64_t n() const { return backward ? weight.in : weight.out; }
  std::int64_t k() const { return backward ? weight.out : weight.in; }
};

// Columns of y of which the weight takes about so many bytes: whole panels of every product.
inline constexpr std::int64_t kWholePanels = 256;
inline std::int64_t columns_at_a_time(const Right& right, std::int64_t bytes) {
  const std::int64_t width = std::max<std::int64_t>(right.k(), 1) * size_bytes(right.weight.dtype);
  return std::max<std::int64_t>(bytes / width / kWholePanels, 1) * kWholePanels;
}

// Operations after the sums of a forward product (kernels/linear.h), done tile by tile while they
// are in cache.
struct Epilogue {
  Tensor residual;  // [n, out] or not given
  std::optional<ActivationKind> activation;
  Tensor preactivation;  // [n, out] or not given

  bool given() const { return residual.defined() || activation.has_value(); }

  // Writes `rows` x `columns` of y from (row, column) on. `sums`: their fp32 sums, bias included,
  // rows `stride` apart.
  void finish(const CpuContext& context, const Tensor& y, const float* sums, std::int64_t stride,
              std::int64_t row, std::int64_t column, std::int64_t rows,
              std::int64_t columns) const {
    const auto part = [&](const Tensor& tensor) {
      return tensor.defined()
                 ? Matrix{at(tensor, row, column), type_of(tensor.dtype()), tensor.stride(0)}
                 : Matrix{};
    };
    context.vector.finish({.sums = sums,
                           .sums_stride = stride,
                           .y = part(y),
                           .residual = part(residual),
                           .preactivation = part(preactivation),
                           .rows = rows,
                           .columns = columns,
                           .activates = activation.has_value(),
                           .kind = kind_of(activation.value_or(ActivationKind::kGeluTanh))});
  }
};

// y = a b + bias, with its epilogue.
struct LinearCall {
  Tensor y;     // [n, out]
  Tensor a;     // [n, k]
  Right right;  // [k, out]
  Tensor bias;  // [out] or not given
  Epilogue epilogue;
};

// Columns [begin, begin + size) of y of a call, with the factor b of these.
inline LinearCall columns_of(const LinearCall& call, const Right& right, std::int64_t begin,
                             std::int64_t size) {
  const auto part = [&](const Tensor& tensor, int axis) {
    return tensor.defined() ? tensor.slice(axis, begin, size) : tensor;
  };
  return {.y = part(call.y, 1),
          .a = call.a,
          .right = right,
          .bias = part(call.bias, 0),
          .epilogue = {part(call.epilogue.residual, 1), call.epilogue.activation,
                       part(call.epilogue.preactivation, 1)}};
}

// Shared by all implementations. The call must outlive it.
class LinearProduct {
 protected:
  LinearProduct(CpuContext& context, const LinearCall& call)
      : context_(context),
        y_(call.y),
        a_(call.a),
        right_(call.right),
        bias_(call.bias),
        epilogue_(call.epilogue),
        packed_(call.right.weight.form != WeightForm::kRows) {}

  // The bias of columns [column, column + n) as fp32, in `to`; null if there is none.
  const float* bias_of(float* to, std::int64_t column, std::int64_t n) const {
    if (!bias_.defined()) return nullptr;
    context_.vector.convert(to, Type::kF32, bias_.raw() + column * size_bytes(bias_.dtype()),
                            type_of(bias_.dtype()), n);
    return to;
  }

  // Writes a square of sums of tile products to y from (row, column) on, with the bias of `store`,
  // if it has one, and the epilogue. sums: [store.rows, store.columns], overwritten.
  void finish_square(float* sums, TileStore store, std::int64_t row, std::int64_t column) const {
    store.sums = sums;
    store.y = {at(y_, row, column), type_of(y_.dtype()), y_.stride(0)};
    if (!epilogue_.given()) return context_.tiles->store(store);
    if (store.bias != nullptr) {
      store.y = {sums, Type::kF32, store.sums_stride};
      context_.tiles->store(store);
    }
    epilogue_.finish(context_, y_, sums, store.sums_stride, row, column, store.rows, store.columns);
  }

  CpuContext& context_;
  const Tensor& y_;
  const Tensor& a_;
  const Right& right_;
  const Tensor& bias_;
  const Epilogue& epilogue_;
  bool packed_;
};

// Converts `rows` x `columns` of `from` into `to`, rows `stride` elements apart.
inline void convert_rows(const CpuContext& context, void* to, Type type, std::int64_t stride,
                         const Tensor& from, std::int64_t row, std::int64_t column,
                         std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    context.vector.convert(static_cast<std::byte*>(to) + r * stride * width_of(type), type,
                           at(from, row + r, column), type_of(from.dtype()), columns);
  }
}

// The left side of tile products, read from rows of bf16 where they are, from (row, column) on.
inline LeftTiles tiles_of_rows(const Tensor& rows, std::int64_t row, std::int64_t column) {
  const std::int64_t stride = rows.stride(0) * 2;
  return {.data = at(rows, row, column),
          .group = kTilePair * stride,
          .row = stride,
          .step = kTileDepth * 2};
}

// True if products of weights of this dtype use tiles.
inline bool uses_tiles(const CpuContext& context, DType dtype) {
  return dtype == DType::kBF16 && context.tiles != nullptr;
}
// True if they use the bf16 dot product, unless they use tiles.
inline bool uses_dot(const CpuContext& context, DType dtype) {
  return dtype == DType::kBF16 && context.dot != nullptr;
}

// linear_panels.cpp: fp32 sums of fp32 products.
std::int64_t panel_packed_bytes(const CpuContext& context, std::int64_t n, std::int64_t k,
                                DType dtype);
void panel_pack(CpuContext& context, const PackWeight& call);
void panel_product(CpuContext& context, const LinearCall& call);
void panel_add_weight_gradient(CpuContext& context, const LinearBackwardWeight& call);

// linear_dot.cpp: fp32 sums of bf16 products.
std::int64_t dot_packed_bytes(std::int64_t n, std::int64_t k);
void dot_pack(CpuContext& context, const PackWeight& call);
void dot_product(CpuContext& context, const LinearCall& call);

// linear_amx.cpp: fp32 sums of bf16 products by tiles.
std::int64_t amx_packed_bytes(std::int64_t n, std::int64_t k);
void amx_pack(CpuContext& context, const PackWeight& call);
void amx_product(CpuContext& context, const LinearCall& call);
// Parts that `rows` rows of the left side are divided into, each of which packs a weight in rows.
std::int64_t amx_row_parts(const CpuContext& context, std::int64_t rows, std::int64_t k);
void amx_add_weight_gradient(CpuContext& context, const LinearBackwardWeight& call);

// linear_amx_rows.cpp: the same bits for a weight as it is stored and few rows, at the speed of
// memory.
bool is_few_rows(std::int64_t rows, std::int64_t k);
void amx_rows_product(CpuContext& context, const LinearCall& call);

// linear_skinny.cpp: the same bits for a packed weight and few rows, at the speed of memory.
bool is_skinny(const LinearCall& call);
// Products by weights of equal sizes, in one division among the threads.
void skinny_products(CpuContext& context, std::span<const LinearCall> calls);

// linear_rows.cpp: a weight that is packed, or as it is stored. Of the latter, with many rows of x,
// `product` gets packed parts.
using LinearFunction = void (*)(CpuContext&, const LinearCall&);
void uncoded_product(CpuContext& context, const LinearCall& call, LinearFunction product);

// linear_codes.cpp: a weight held as codes. Few rows are multiplied by the codes themselves
// (vector/codes.h); for more, some columns of y at a time, the weight is expanded to the rows that
// `product` reads, with the bits of a weight held as such rows.
void codes_product(CpuContext& context, const LinearCall& call, LinearFunction product);
// Whether all rows are multiplied by the codes; products of such calls by weights of equal sizes
// and formats, in one division among the threads.
bool multiplies_by_codes(const LinearCall& call);
void code_products(CpuContext& context, std::span<const LinearCall> calls);

// linear_float8.cpp: calls in FP8, whose factors are rounded to rows of bf16 for the products
// above.
void multiply_in_float8(CpuContext& context, const LinearForward& call);
void multiply_in_float8(CpuContext& context, const LinearBackwardInput& call);
void add_in_float8(CpuContext& context, const LinearBackwardWeight& call);  // not to dbias

// weight_codes.cpp: the codes as loops read them.
CodedRows coded_rows(const WeightCodes& codes, std::int64_t in);
// Of expanded columns [first, first + count) of a row; nothing if the codes have no minima.
void subtract_minima(const WeightCodes& codes, std::int64_t row, std::int64_t first, float* values,
                     std::int64_t count);

}  // namespace piton::cpu
