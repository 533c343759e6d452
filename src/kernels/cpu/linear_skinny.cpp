// Few rows by a packed weight, as in decoding: the time is that of reading the weight from memory
// once. Every sum runs over k in order, as in linear_dot.cpp.
#include <vector>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/cpu/panel_runs.h"

namespace piton::cpu {
namespace {

// Rows per pass over a panel: their sums fill the registers.
constexpr std::int64_t kPassRows = 6;
// More rows need several passes. From the second pass on, a tile is in the second-level cache, and
// all passes together prefetch the next tile: up to 128 KiB each.
constexpr std::int64_t kPassPairs = 512;
constexpr std::int64_t kAheadWords = 8192 / 4;

class SkinnyProduct : LinearProduct {
 public:
  SkinnyProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call), m_(a_.dim(0)), pairs_(right_.k() / 2) {}

  // Columns [column, column + kPanel) of y. `last`: this thread reads nothing that follows in
  // memory.
  void multiply(std::int64_t column, bool last) const {
    const std::int64_t n = std::min<std::int64_t>(kPanel, right_.n() - column);
    auto* sums = reinterpret_cast<float*>(context_.scratch.own((m_ + 1) * kPanel * 4));
    const float* bias = bias_of(sums + m_ * kPanel, column, n);
    const std::int64_t width = (n + 15) / 16 * 16;
    // Equal tiles: the passes prefetch as much as the next tile has.
    const std::int64_t deep =
        m_ <= kPassRows ? pairs_
                        : (pairs_ + tiles(pairs_, kPassPairs) - 1) / tiles(pairs_, kPassPairs);
    const Pair* b = reinterpret_cast<const Pair*>(right_.weight.tensor.raw()) + column * pairs_;
    for (std::int64_t first = 0; first < pairs_; first += deep) {
      const std::int64_t pairs = std::min(deep, pairs_ - first);
      const bool ends = first + pairs == pairs_;
      DotOutput c{.data = sums, .type = Type::kF32, .stride = kPanel};
      if (ends && !epilogue_.given())
        c = {.data = at(y_, 0, column), .type = type_of(y_.dtype()), .stride = y_.stride(0)};
      if (first > 0) {
        c.addend = sums;
        c.addend_stride = kPanel;
      }
      if (ends) c.bias = bias;
      const auto* a = reinterpret_cast<const std::uint16_t*>(at(a_, 0, 2 * first));
      if (n < kPanel) {
        context_.dot->product(m_, n, pairs, a, a_.stride(0), 2, b, 0, 0, c);
      } else {
        context_.dot->product_streamed(m_, pairs, a, a_.stride(0), b, next(b, pairs, last && ends),
                                       c);
      }
      b += pairs * width;
    }
    if (epilogue_.given()) epilogue_.finish(context_, y_, sums, kPanel, 0, column, m_, n);
  }

 private:
  const Pair* next(const Pair* b, std::int64_t pairs, bool last) const {
    if (m_ < kSlowRows || last) return nullptr;
    return b + (m_ <= kPassRows ? kAheadWords : pairs * kPanel);
  }

  std::int64_t m_;
  std::int64_t pairs_;
};

}  // namespace

bool is_skinny(const LinearCall& call) {
  return call.a.dim(0) <= kSkinnyRows && call.a.dtype() == DType::kBF16 &&
         call.right.k() % 2 == 0 && call.right.weight.form != WeightForm::kRows;
}

void skinny_products(CpuContext& context, std::span<const LinearCall> calls) {
  std::vector<SkinnyProduct> products;
  products.reserve(calls.size());
  for (const LinearCall& call : calls) products.emplace_back(context, call);
  const std::int64_t panels = tiles(calls[0].right.n(), kPanel);
  const PanelRuns runs(context, panels * std::ssize(calls),
                       context.scratch.shared(PanelRuns::bytes(context)));
  context.threads.run(runs.parts(), [&](std::int64_t part) {
    runs.take(part, [&](std::int64_t panel, bool last) {
      const std::int64_t own = panel % panels;
      products[static_cast<std::size_t>(panel / panels)].multiply(own * kPanel,
                                                                  last || own + 1 == panels);
    });
  });
}

}  // namespace piton::cpu
