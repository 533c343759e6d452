// Linear maps with fp32 sums of fp32 products. A part keeps some rows in fp32 in the second-level
// cache and multiplies them by the panels of a weight, one after another. 16-bit panels are widened
// one stretch of one panel at a time.
//
// Every element is the sum of stretches over k in order, cut by k alone (vector/panels.h), so
// neither threads nor row counts nor the division of work affect its bits.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/cpu/panel_runs.h"

namespace piton::cpu {
namespace {

// Columns of a part with several stretches: its sums stay in the second-level cache.
constexpr std::int64_t kWaitingColumns = 1024;
// Parts per thread, so that threads finish together.
constexpr std::int64_t kPartsOfThread = 4;
constexpr std::int64_t kFewestPanels = 4;
// Panels that are read at once from rows of a weight, backward: whole lines of rows.
constexpr std::int64_t kReadTogether = 4;

// Rows of x and dy per pass of the weight gradient: dW is read and written once per pass.
constexpr std::int64_t kGradientDepth = 1024;

// k of one stretch: all of k in equal parts.
std::int64_t stretch_of(std::int64_t most, std::int64_t k) {
  return k == 0 ? 1 : up(tiles(k, tiles(k, most)), 8);
}

// Shared by products of many and of few rows: the weight's panels and the destination of sums.
class PanelProduct : protected LinearProduct {
 protected:
  PanelProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call),
        table_(context.panels),
        type_(type_of(right_.weight.dtype)),
        n_(right_.n()),
        k_(right_.k()),
        stretch_(stretch_of(table_.depth, k_)),
        direct_(y_.dtype() == DType::kF32 && !epilogue_.given()) {}

  // Columns of the panel at `column` with padding.
  std::int64_t padded_width(std::int64_t column) const {
    return up(std::min(table_.panel, n_ - column), table_.lanes);
  }
  const std::byte* packed_at(std::int64_t column, std::int64_t first) const {
    return right_.weight.tensor.raw() +
           (column * k_ + first * padded_width(column)) * width_of(type_);
  }

  // Bytes of a stretch of one panel in fp32, unless it is packed so.
  std::int64_t tile_bytes() const {
    return packed_ && type_ == Type::kF32 ? 0 : table_.panel * stretch_ * 4;
  }
  // Returns a stretch of one packed panel in fp32.
  const void* right(std::int64_t column, std::int64_t first, std::int64_t k,
                    std::byte* memory) const {
    const std::byte* panel = packed_at(column, first);
    if (type_ == Type::kF32) return panel;
    context_.vector.convert(memory, Type::kF32, panel, type_, k * padded_width(column));
    return memory;
  }

  // Writes n columns of sums, bias included, to y. Rows of sums are `stride` apart.
  void finish(const float* sums, std::int64_t stride, std::int64_t row, std::int64_t column,
              std::int64_t m, std::int64_t n) const {
    if (epilogue_.given()) return epilogue_.finish(context_, y_, sums, stride, row, column, m, n);
    for (std::int64_t r = 0; r < m; ++r) {
      context_.vector.convert(at(y_, row + r, column), type_of(y_.dtype()), sums + r * stride,
                              Type::kF32, n);
    }
  }

  const PanelTable& table_;
  Type type_;
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t stretch_;
  bool direct_;  // sums are written to y at once
};

class ManyRows : PanelProduct {
 public:
  ManyRows(CpuContext& context, const LinearCall& call)
      : PanelProduct(context, call),
        rows_(rows_of_part()),
        row_parts_(tiles(a_.dim(0), rows_)),
        columns_(columns_of_part()),
        together_(packed_ || !right_.backward ? 1 : kReadTogether) {}

  std::int64_t parts() const { return row_parts_ * tiles(n_, columns_); }

  void operator()(std::int64_t part) const {
    run(part % row_parts_ * rows_, part / row_parts_ * columns_);
  }

 private:
  bool waits() const { return k_ > stretch_ && !direct_; }

  // Rows of a part: about equal for all parts, with the same number of parts for each thread.
  std::int64_t rows_of_part() const {
    const std::int64_t fewest = tiles(a_.dim(0), table_.part_rows);
    const std::int64_t threads = context_.threads.threads();
    return tiles(a_.dim(0), fewest < threads ? fewest : up(fewest, threads));
  }

  // Columns of a part, a multiple of a panel: all columns if rows alone make enough parts.
  std::int64_t columns_of_part() const {
    const std::int64_t wanted = tiles(kPartsOfThread * context_.threads.threads(), row_parts_);
    const std::int64_t most = tiles(n_, kFewestPanels * table_.panel);
    const std::int64_t columns = up(tiles(n_, std::min(wanted, most)), table_.panel);
    return waits() ? std::min(columns, up(kWaitingColumns, table_.panel)) : columns;
  }

  void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t m = std::min(rows_, a_.dim(0) - row);
    const std::int64_t n = std::min(columns_, n_ - column);
    const std::int64_t left_bytes = m * table_.left_stride * 4;
    const std::int64_t kept = waits() ? up(n, table_.panel) : direct_ ? 0 : table_.panel;
    const std::int64_t right_bytes = together_ * tile_bytes();
    std::byte* memory =
        context_.scratch.own(aligned(left_bytes) + right_bytes + m * kept * 4 + table_.panel * 4);
    auto* left = reinterpret_cast<float*>(memory);
    std::byte* tile = memory + aligned(left_bytes);
    auto* sums = reinterpret_cast<float*>(tile + right_bytes);
    float* bias = sums + m * kept;
    for (std::int64_t first = 0; first == 0 || first < k_; first += stretch_) {
      const std::int64_t k = std::min(stretch_, k_ - first);
      const bool last = first + k == k_;
      convert_rows(context_, left, Type::kF32, table_.left_stride, a_, row, first, m, k);
      for (std::int64_t panel = 0; panel < n; panel += table_.panel) {
        const std::int64_t from = column + panel;
        const std::int64_t width = std::min(table_.panel, n - panel);
        PanelMultiply product{
            .rows = m,
            .columns = width,
            .depth = k,
            .left = left,
            .right = packed_ ? right(from, first, k, tile) : read(from, panel, first, k, tile),
            .sums = sums + (waits() ? m * panel : 0),
            .stride = table_.panel,
            .adds = first > 0,
            .bias = last ? bias_of(bias, from, width) : nullptr,
            .ahead = packed_ ? packed_ahead(from + table_.panel, first, k)
                             : rows_ahead(from, panel, first, k)};
        if (direct_) {
          product.sums = reinterpret_cast<float*>(at(y_, row, from));
          product.stride = y_.stride(0);
        }
        table_.multiply_rows(product);
        if (last && !direct_) finish(product.sums, table_.panel, row, from, m, width);
      }
    }
  }

  PanelAhead packed_ahead(std::int64_t column, std::int64_t first, std::int64_t k) const {
    if (column >= n_) return {};
    return {.data = packed_at(column, first), .bytes = k * padded_width(column) * width_of(type_)};
  }

  // Returns a stretch of one panel in fp32 of a weight in plain rows. `panel`: columns of the part
  // before it. The first of `together_` panels reads them all.
  const void* read(std::int64_t column, std::int64_t panel, std::int64_t first, std::int64_t k,
                   std::byte* memory) const {
    const Tensor& weight = right_.weight.tensor;
    auto* to = reinterpret_cast<float*>(memory);
    const std::int64_t columns = std::min(together_ * table_.panel, n_ - column);
    if (!right_.backward) {
      table_.pack_right_columns_wide(to, {at(weight, column, first), type_, weight.stride(0)}, k,
                                     columns);
      return memory;
    }
    const std::int64_t index = panel / table_.panel % together_;
    if (index == 0) {
      table_.pack_right_wide(to, {at(weight, first, column), type_, weight.stride(0)}, k, columns);
    }
    return to + index * k * table_.panel;
  }

  // What read() needs after the panel at `column`: forward all of the next panel; backward a share
  // of the next `together_` panels.
  PanelAhead rows_ahead(std::int64_t column, std::int64_t panel, std::int64_t first,
                        std::int64_t k) const {
    const Tensor& weight = right_.weight.tensor;
    const std::int64_t bytes = width_of(type_);
    const std::int64_t index = panel / table_.panel % together_;
    const std::int64_t next = column + (together_ - index) * table_.panel;
    if (next >= n_) return {};
    const std::int64_t columns = std::min(together_ * table_.panel, n_ - next);
    if (!right_.backward)
      return {at(weight, next, first), k * bytes, columns, weight.stride(0) * bytes};
    const std::int64_t begin = k * index / together_;
    return {at(weight, first + begin, next), columns * bytes, k * (index + 1) / together_ - begin,
            weight.stride(0) * bytes};
  }

  std::int64_t rows_;  // of a part
  std::int64_t row_parts_;
  std::int64_t columns_;   // of a part
  std::int64_t together_;  // panels that are read at once from rows
};

class FewRows : PanelProduct {
 public:
  FewRows(CpuContext& context, const LinearCall& call)
      : PanelProduct(context, call),
        m_(a_.dim(0)),
        together_(type_ == Type::kF16 ? 1 : PanelTable::panels_at_once(m_)),
        memory_(context.scratch.shared(aligned(PanelRuns::bytes(context)) + left_bytes())),
        runs_(context, tiles(n_, table_.panel), memory_) {
    for (std::int64_t first = 0; first < k_; first += stretch_) {
      convert_rows(context_, left(first), Type::kF32, table_.left_stride, a_, 0, first, m_,
                   std::min(stretch_, k_ - first));
    }
  }

  std::int64_t parts() const { return runs_.parts(); }

  void operator()(std::int64_t part) const {
    runs_.take(part, together_, [&](std::int64_t panel, std::int64_t panels, bool last) {
      const std::int64_t column = panel * table_.panel;
      if (panels == together_ && column + panels * table_.panel <= n_)
        return multiply(column, panels, last);
      for (std::int64_t i = 0; i < panels; ++i)
        multiply(column + i * table_.panel, 1, last && i + 1 == panels);
    });
  }

 private:
  // All of the rows in fp32, stretch by stretch.
  std::int64_t left_bytes() const { return tiles(k_, stretch_) * m_ * table_.left_stride * 4; }
  float* left(std::int64_t first) const {
    return reinterpret_cast<float*>(memory_ + aligned(PanelRuns::bytes(context_))) +
           first / stretch_ * m_ * table_.left_stride;
  }

  void multiply(std::int64_t column, std::int64_t panels, bool last_panel) const {
    const std::int64_t n = std::min(panels * table_.panel, n_ - column);
    const std::int64_t stride = panels * table_.panel;
    std::byte* tile = context_.scratch.own(tile_bytes() + (m_ + 1) * stride * std::int64_t{4});
    auto* sums = reinterpret_cast<float*>(tile + tile_bytes());
    // Panels are read as they are.
    const bool whole = type_ != Type::kF16 && n == stride;
    for (std::int64_t first = 0; first == 0 || first < k_; first += stretch_) {
      const std::int64_t k = std::min(stretch_, k_ - first);
      const bool last = first + k == k_;
      const std::byte* packed = packed_at(column, first);
      const std::int64_t bytes = k * padded_width(column) * width_of(type_);
      PanelMultiply product{.rows = m_,
                            .columns = n,
                            .depth = k,
                            .left = left(first),
                            .right = whole ? packed : right(column, first, k, tile),
                            .panel_bytes = k_ * table_.panel * width_of(type_),
                            .sums = direct_ ? reinterpret_cast<float*>(at(y_, 0, column)) : sums,
                            .stride = direct_ ? y_.stride(0) : stride,
                            .adds = first > 0,
                            .bias = last ? bias_of(sums + m_ * stride, column, n) : nullptr};
      if (m_ >= kSlowRows && !(last && last_panel)) {
        product.ahead = {.data = packed + bytes, .bytes = bytes};
      }
      if (whole) {
        table_.multiply_whole(product, type_);
      } else {
        table_.multiply_rows(product);
      }
    }
    if (!direct_) finish(sums, stride, 0, column, m_, n);
  }

  std::int64_t m_;
  std::int64_t together_;  // panels that are multiplied at once
  std::byte* memory_;
  PanelRuns runs_;
};

// Panels packed by one part: enough that long pieces of rows are read.
constexpr std::int64_t kPackedPanels = 4;

// dW[out, in] += dy^T x, with dy^T as the left side and x as the right. The smaller of the two is
// packed once for all parts. Each part packs what it needs of the other, which then stays in its
// second-level cache.
class WeightGradient {
 public:
  WeightGradient(CpuContext& context, const LinearBackwardWeight& call)
      : context_(context),
        table_(context.panels),
        call_(call),
        out_(call.dweight.dim(0)),
        in_(call.dweight.dim(1)),
        stretch_(stretch_of(kGradientDepth, call.x.dim(0))),
        rows_(
            up(table_.part_rows * table_.depth / std::max(table_.depth, stretch_), table_.group)) {}

  void run() const {
    const std::int64_t rows = call_.x.dim(0);
    const std::int64_t shared =
        in_ > out_ ? up(out_, table_.group) * stretch_ : table_.elements(in_, stretch_);
    auto* memory = reinterpret_cast<float*>(context_.scratch.shared(shared * 4));
    for (std::int64_t row = 0; row < rows; row += stretch_) {
      const std::int64_t k = std::min(stretch_, rows - row);
      if (in_ > out_) {
        by_columns(memory, row, k);
      } else {
        by_rows(memory, row, k);
      }
    }
  }

 private:
  void by_rows(float* x, std::int64_t row, std::int64_t k) const {
    context_.ranges(in_, kPackedPanels * table_.panel, [&](std::int64_t begin, std::int64_t end) {
      pack_x(x + begin * k, row, k, begin, end);
    });
    context_.ranges(out_, grain(out_, table_.group, rows_),
                    [&](std::int64_t begin, std::int64_t end) {
                      const std::int64_t m = end - begin;
                      auto* dy = reinterpret_cast<float*>(
                          context_.scratch.own(up(m, table_.group) * k * std::int64_t{4}));
                      pack_dy(dy, row, k, begin, end);
                      for (std::int64_t column = 0; column < in_; column += table_.panel) {
                        const float* next = x + (column + table_.panel) * k;
                        const std::int64_t columns =
                            std::clamp<std::int64_t>(in_ - column - table_.panel, 0, table_.panel);
                        multiply({dy, begin, m}, {x + column * k, column}, row, k,
                                 {next, table_.elements(columns, k)});
                      }
                    });
  }

  void by_columns(float* dy, std::int64_t row, std::int64_t k) const {
    context_.ranges(out_, 8 * table_.group, [&](std::int64_t begin, std::int64_t end) {
      pack_dy(dy + begin * k, row, k, begin, end);
    });
    context_.ranges(in_, grain(in_, table_.panel, kPackedPanels * table_.panel),
                    [&](std::int64_t begin, std::int64_t end) {
                      auto* x = reinterpret_cast<float*>(
                          context_.scratch.own(table_.elements(end - begin, k) * 4));
                      pack_x(x, row, k, begin, end);
                      for (std::int64_t first = 0; first < out_; first += rows_) {
                        const std::int64_t m = std::min(rows_, out_ - first);
                        const float* next = dy + (first + m) * k;
                        const std::int64_t elements = std::min(rows_, out_ - first - m) * k;
                        const std::int64_t panels = tiles(end - begin, table_.panel);
                        for (std::int64_t panel = 0; panel < panels; ++panel) {
                          const std::int64_t column = begin + panel * table_.panel;
                          multiply({dy + first * k, first, m}, {x + (column - begin) * k, column},
                                   row, k, {next + elements * panel / panels, elements / panels});
                        }
                      }
                    });
  }

  // Size of a part, a multiple of `unit`, so that threads finish together.
  std::int64_t grain(std::int64_t n, std::int64_t unit, std::int64_t most) const {
    const std::int64_t even = tiles(n, kPartsOfThread * context_.threads.threads());
    return std::clamp(up(even, unit), unit, up(most, unit));
  }

  // Packs columns [begin, end) of `k` rows.
  void pack_x(float* to, std::int64_t row, std::int64_t k, std::int64_t begin,
              std::int64_t end) const {
    const Matrix x{at(call_.x, row, begin), type_of(call_.x.dtype()), call_.x.stride(0)};
    table_.pack_right_wide(to, x, k, end - begin);
  }
  void pack_dy(float* to, std::int64_t row, std::int64_t k, std::int64_t begin,
               std::int64_t end) const {
    const Matrix dy{at(call_.dy, row, begin), type_of(call_.dy.dtype()), call_.dy.stride(0)};
    table_.pack_left(to, dy, k, end - begin);
  }

  // Rows of dW, as packed columns of dy.
  struct Left {
    const float* packed;
    std::int64_t row;
    std::int64_t rows;
  };
  // A panel of columns of dW, as packed columns of x.
  struct Right {
    const float* packed;
    std::int64_t column;
  };
  struct Ahead {
    const float* data;
    std::int64_t elements;
  };
  // For the stretch of `k` rows of x from `row` on.
  void multiply(const Left& left, const Right& right, std::int64_t row, std::int64_t k,
                const Ahead& next) const {
    const std::int64_t stride = call_.dweight.stride(0);
    table_.multiply_groups({.rows = left.rows,
                            .columns = std::min(table_.panel, in_ - right.column),
                            .depth = k,
                            .left = left.packed,
                            .right = right.packed,
                            .sums = call_.dweight.data<float>() + left.row * stride + right.column,
                            .stride = stride,
                            .adds = row > 0 || !call_.overwrites,
                            .ahead = {.data = reinterpret_cast<const std::byte*>(next.data),
                                      .bytes = next.elements * 4}});
  }

  CpuContext& context_;
  const PanelTable& table_;
  const LinearBackwardWeight& call_;
  std::int64_t out_;
  std::int64_t in_;
  std::int64_t stretch_;
  std::int64_t rows_;  // of dW whose dy^T stays in the second-level cache
};

}  // namespace

std::int64_t panel_packed_bytes(const CpuContext& context, std::int64_t n, std::int64_t k,
                                DType dtype) {
  return context.panels.elements(n, k) * size_bytes(dtype);
}

void panel_pack(CpuContext& context, const PackWeight& call) {
  const bool backward = call.form == WeightForm::kBackward;
  const std::int64_t n = call.rows.dim(backward ? 1 : 0);
  const std::int64_t k = call.rows.dim(backward ? 0 : 1);
  const PanelTable& table = context.panels;
  const auto part = [&](std::int64_t begin, std::int64_t end) {
    std::byte* panels = call.packed.raw() + begin * k * size_bytes(call.rows.dtype());
    const Matrix rows{backward ? at(call.rows, 0, begin) : at(call.rows, begin, 0),
                      type_of(call.rows.dtype()), call.rows.stride(0)};
    (backward ? table.pack_right : table.pack_right_columns)(panels, rows, k, end - begin);
  };
  context.ranges(n, kPackedPanels * table.panel, part);
}

void panel_product(CpuContext& context, const LinearCall& call) {
  if (call.a.dim(0) <= kSkinnyRows && call.right.weight.form != WeightForm::kRows) {
    const FewRows product(context, call);
    context.threads.run(product.parts(), product);
  } else {
    const ManyRows product(context, call);
    context.threads.run(product.parts(), product);
  }
}

void panel_add_weight_gradient(CpuContext& context, const LinearBackwardWeight& call) {
  WeightGradient(context, call).run();
}

}  // namespace piton::cpu
