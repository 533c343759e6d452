// Few rows by a weight as it is stored, by tile products: y^T = W x^T. Rows of W are the left side
// where they are; only x is packed, as the right side. Each weight is read once, in order, and the
// time is that of reading memory. The bits are those of linear_amx.cpp: a chain over k does not
// depend on which side its factors are.
#include <algorithm>

#include "kernels/cpu/linear_tiles.h"
#include "kernels/cpu/panel_runs.h"

namespace piton::cpu {
namespace {

class AmxRowsProduct : LinearProduct {
 public:
  AmxRowsProduct(CpuContext& context, const LinearCall& call)
      : LinearProduct(context, call),
        m_(a_.dim(0)),
        n_(right_.n()),
        k_(right_.k()),
        panel_(context.scratch.shared(tile_pair_bytes(k_) + PanelRuns::bytes(context))),
        runs_(context, tiles(n_, kTilePair), panel_ + tile_pair_bytes(k_)) {
    context.tiles->pack_right_rows(panel_, {a_.raw(), type_of(a_.dtype()), a_.stride(0)}, m_, k_);
  }

  std::int64_t parts() const { return runs_.parts(); }

  void operator()(std::int64_t part) const {
    const TileScope scope(*context_.tiles);
    runs_.take(part, [&](std::int64_t group, bool last) { multiply(group * kTilePair, last); });
  }

 private:
  // kTilePair columns of y, which are rows of the weight. `last`: this thread reads nothing that
  // follows in memory.
  void multiply(std::int64_t column, bool last) const {
    const std::int64_t n = std::min(kTilePair, n_ - column);
    const bool whole = n % kTileEdge == 0;
    std::byte* own =
        context_.scratch.own(2 * kSumsBytes + kTilePair * 4 + (whole ? 0 : tile_pair_bytes(k_)));
    auto* sums = reinterpret_cast<float*>(own);                 // [n, kTilePair]
    auto* turned = reinterpret_cast<float*>(own + kSumsBytes);  // [m, kTilePair]
    auto* bias = reinterpret_cast<float*>(own + 2 * kSumsBytes);
    const Tensor& weight = right_.weight.tensor;
    TileMultiply product{.rows = n,
                         .columns = m_,
                         .steps = tile_steps(k_),
                         .right = {.data = panel_},
                         .sums = sums,
                         .sums_stride = kTilePair};
    if (whole) {
      product.left = tiles_of_rows(weight, column, 0);
    } else {  // a tile would read past the last row
      std::byte* left = own + 2 * kSumsBytes + kTilePair * 4;
      context_.tiles->pack_left(left, {at(weight, column, 0), Type::kBF16, weight.stride(0)}, n,
                                k_);
      product.left.data = left;
    }
    if (!last) {
      product.ahead[0] = {.data = at(weight, column + kTilePair, 0),
                          .stride = 2 * weight.stride(0),
                          .lines = tiles(2 * k_, 64),
                          .end = std::min(kTilePair, n_ - column - kTilePair) * tiles(2 * k_, 64)};
    }
    context_.tiles->multiply(product);
    for (std::int64_t row = 0; row < m_; ++row) {
      for (std::int64_t c = 0; c < n; ++c) turned[row * kTilePair + c] = sums[c * kTilePair + row];
    }
    finish_square(
        turned,
        {.sums_stride = kTilePair, .bias = bias_of(bias, column, n), .rows = m_, .columns = n}, 0,
        column);
  }

  static constexpr std::int64_t kSumsBytes = kTilePair * kTilePair * 4;

  std::int64_t m_;
  std::int64_t n_;
  std::int64_t k_;
  std::byte* panel_;  // x^T
  PanelRuns runs_;    // of groups of kTilePair rows of the weight
};

}  // namespace

bool is_few_rows(std::int64_t rows, std::int64_t k) {
  return rows <= kTilePair && k % kTileDepth == 0;
}

void amx_rows_product(CpuContext& context, const LinearCall& call) {
  const AmxRowsProduct product(context, call);
  context.threads.run(product.parts(), product);
}

}  // namespace piton::cpu
