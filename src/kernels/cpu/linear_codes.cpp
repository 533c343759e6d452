// Linear maps with a weight held as codes.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/cpu/panel_runs.h"

namespace piton::cpu {
namespace {

// Most rows that are multiplied by the codes themselves.
constexpr std::int64_t kMostCodeRows = 16;
// Rows of the weight that a thread takes at once.
constexpr std::int64_t kOutputs = 64;
// Expanded rows at a time: they stay in the last-level cache.
constexpr std::int64_t kExpandedBytes = std::int64_t{2} << 20;

// The codes are read from memory once, and nothing else is.
class CodeProduct : LinearProduct {
 public:
  CodeProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call),
        m_(a_.dim(0)),
        w_(coded_rows(right_.weight.codes, right_.k())) {}

  std::int64_t rows() const { return m_; }
  // Of rounded rows.
  std::int64_t bytes() const {
    return values_bytes() + aligned(m_ * (code_scales(w_) + code_group_sums(w_)) * 4 + 64);
  }
  void round_into(std::byte* memory) {
    x_.values = reinterpret_cast<std::int16_t*>(memory);
    x_.scales = reinterpret_cast<float*>(memory + values_bytes());
    if (w_.zeros != nullptr || w_.minima != nullptr || w_.zero != 0)
      x_.group_sums = x_.scales + m_ * code_scales(w_);
  }
  void round_row(std::int64_t r) const {
    auto* row = reinterpret_cast<float*>(context_.scratch.own(w_.columns * 4));
    convert_rows(context_, row, Type::kF32, w_.columns, a_, r, 0, 1, w_.columns);
    context_.codes.round_row(x_, r, row, w_);
  }

  // Columns [column, column + kOutputs) of y.
  void multiply(std::int64_t column) const {
    const std::int64_t n = std::min(kOutputs, right_.n() - column);
    auto* sums =
        reinterpret_cast<float*>(context_.scratch.own(((m_ + 1) * kOutputs + code_memory(w_)) * 4));
    float* memory = sums + (m_ + 1) * kOutputs;
    context_.codes.multiply(sums, kOutputs, x_, m_, w_, column, column + n, memory);
    if (const float* bias = bias_of(sums + m_ * kOutputs, column, n); bias != nullptr) {
      for (std::int64_t r = 0; r < m_; ++r) {
        for (std::int64_t c = 0; c < n; ++c) sums[r * kOutputs + c] += bias[c];
      }
    }
    if (epilogue_.given()) {
      return epilogue_.finish(context_, y_, sums, kOutputs, 0, column, m_, n);
    }
    for (std::int64_t r = 0; r < m_; ++r) {
      context_.vector.convert(at(y_, r, column), type_of(y_.dtype()), sums + r * kOutputs,
                              Type::kF32, n);
    }
  }

 private:
  std::int64_t values_bytes() const { return aligned(m_ * code_row_size(w_.columns) * 2); }

  std::int64_t m_;
  CodedRows w_;
  IntegerRows x_;
};

// Groups that the loops have.
bool multiplies_codes(const LinearCall& call) {
  const WeightView& weight = call.right.weight;
  const std::int64_t group = weight.codes.group;
  return !call.right.backward && weight.in % 32 == 0 &&
         (group % 32 == 0 || (group == 16 && weight.codes.kind == CodeKind::kInt8) ||
          group >= weight.in);
}

Tensor rows_of(const Tensor& tensor, std::int64_t begin, std::int64_t size) {
  return tensor.defined() ? tensor.slice(0, begin, size) : tensor;
}

LinearCall some_rows(const LinearCall& call, std::int64_t begin, std::int64_t size) {
  return {.y = rows_of(call.y, begin, size),
          .a = rows_of(call.a, begin, size),
          .right = call.right,
          .bias = call.bias,
          .epilogue = {rows_of(call.epilogue.residual, begin, size), call.epilogue.activation,
                       rows_of(call.epilogue.preactivation, begin, size)}};
}

// Expands what columns [begin, begin + size) of y read: rows of the weight, or backward columns.
Tensor expand(CpuContext& context, const Right& right, std::int64_t begin, std::int64_t size) {
  const WeightView& weight = right.weight;
  const CodedRows w = coded_rows(weight.codes, weight.in);
  const Shape shape = right.backward ? Shape{weight.out, size} : Shape{size, weight.in};
  const Tensor rows(context.expanded.storage(), 0, weight.dtype, shape);
  const std::int64_t first_row = right.backward ? 0 : begin;
  const std::int64_t first_column = right.backward ? begin : 0;
  const std::int64_t columns = shape[1];
  context.ranges(shape[0], grain_of(columns * 4), [&](std::int64_t from, std::int64_t to) {
    auto* values = reinterpret_cast<float*>(context.scratch.own(columns * 4));
    for (std::int64_t row = from; row < to; ++row) {
      context.codes.expand(values, w, first_row + row, first_column, columns);
      subtract_minima(weight.codes, first_row + row, first_column, values, columns);
      context.vector.convert(at(rows, row, 0), type_of(weight.dtype), values, Type::kF32, columns);
    }
  });
  return rows;
}

// The same for y = x W^T by the bf16 dot product, in the form that it reads.
Tensor expand_packed(CpuContext& context, const Right& right, std::int64_t begin,
                     std::int64_t size) {
  const CodedRows w = coded_rows(right.weight.codes, right.weight.in);
  context.ranges(size, kPanel, [&](std::int64_t from, std::int64_t to) {
    Pair* panels = reinterpret_cast<Pair*>(context.expanded.raw()) + panel_words(from, w.columns);
    context.dot->pack_codes(panels, w, begin + from, to - from);
  });
  return {context.expanded.storage(), 0, DType::kU8, Shape{dot_packed_bytes(size, w.columns)}};
}

void expanded_product(CpuContext& context, const LinearCall& call, LinearFunction product) {
  const Right& right = call.right;
  const bool packs = !right.backward && product == dot_product &&
                     packs_codes(coded_rows(right.weight.codes, right.weight.in));
  const std::int64_t step = columns_at_a_time(right, kExpandedBytes);
  memory_in(context.expanded, right.weight.dtype,
            {up(std::min(step, right.n()), kWholePanels), right.k()});
  for (std::int64_t begin = 0; begin < right.n(); begin += step) {
    const std::int64_t size = std::min(step, right.n() - begin);
    const WeightView some{.form = packs ? WeightForm::kForward : WeightForm::kRows,
                          .tensor = packs ? expand_packed(context, right, begin, size)
                                          : expand(context, right, begin, size),
                          .out = right.backward ? right.weight.out : size,
                          .in = right.backward ? size : right.weight.in,
                          .dtype = right.weight.dtype};
    uncoded_product(context, columns_of(call, {some, right.backward}, begin, size), product);
  }
}

void round_rows(CpuContext& context, std::span<const CodeProduct> products) {
  std::vector<std::pair<const CodeProduct*, std::int64_t>> rows;
  for (const CodeProduct& product : products) {
    for (std::int64_t r = 0; r < product.rows(); ++r) rows.emplace_back(&product, r);
  }
  context.ranges(std::ssize(rows), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto& [product, row] = rows[static_cast<std::size_t>(i)];
      product->round_row(row);
    }
  });
}

}  // namespace

bool multiplies_by_codes(const LinearCall& call) {
  return call.a.dim(0) <= kMostCodeRows && multiplies_codes(call);
}

void code_products(CpuContext& context, std::span<const LinearCall> calls) {
  std::vector<CodeProduct> products;
  products.reserve(calls.size());
  std::int64_t bytes = aligned(PanelRuns::bytes(context));
  for (const LinearCall& call : calls) bytes += products.emplace_back(context, call).bytes();
  std::byte* memory = context.scratch.shared(bytes);
  const std::int64_t panels = tiles(calls[0].right.n(), kOutputs);
  const PanelRuns runs(context, panels * std::ssize(calls), memory);
  memory += aligned(PanelRuns::bytes(context));
  for (CodeProduct& product : products) {
    product.round_into(memory);
    memory += product.bytes();
  }
  round_rows(context, products);
  context.threads.run(runs.parts(), [&](std::int64_t part) {
    runs.take(part, [&](std::int64_t panel, bool) {
      products[static_cast<std::size_t>(panel / panels)].multiply(panel % panels * kOutputs);
    });
  });
}

void codes_product(CpuContext& context, const LinearCall& call, LinearFunction product) {
  const std::int64_t m = call.a.dim(0);
  if (!multiplies_codes(call)) return expanded_product(context, call, product);
  // The last rows after whole tiles are computed as they are alone.
  const std::int64_t rest = m % kRowTile;
  const std::int64_t few = rest <= kMostCodeRows ? rest : 0;
  if (m > few) expanded_product(context, some_rows(call, 0, m - few), product);
  if (few == 0) return;
  const LinearCall last = some_rows(call, m - few, few);
  code_products(context, {&last, 1});
}

}  // namespace piton::cpu
