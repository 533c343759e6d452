// Steps that column and row linears have in common; for column_linear.cpp and row_linear.cpp.
#pragma once

#include <utility>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/row_ranges.h"

namespace piton {

// The part of a product that computes `size` rows of y from `size` rows of x.
LinearForward rows_of(const LinearForward& whole, std::int64_t y_begin, std::int64_t x_begin,
                      std::int64_t size);

// The rows of all members, [n, h], complete at `ready`. mine [n/t, h], which may be freed at once.
Tensor gather(Context& context, const Tensor& mine, Communicator& group, Event& ready);

// The weight for y = x W^T of `rows` rows of x, and for dx = dy W.
WeightUse weight_forward(Context& context, const SplitWeight& split, std::int64_t rows);
WeightUse weight_backward(Context& context, const SplitWeight& split);

// dW += dy^T x and db += sum of dy, and counts both contributions.
void weight_gradient(Context& context, const SplitWeight& split, Parameter* bias, const Tensor& dy,
                     const Tensor& x);

// x, if a weight job will read it.
Kept keep_for_gradients(Context& context, const Tensor& x, const Parameter& weight,
                        const std::vector<LinearAdapter>& adapters);

// How many slices the product is cut into, or kFused if its whole-width tensor, of `bytes` bytes,
// fits into the shared memory; products that do not fit are whole.
int cut_of(const SplitWeight& split, const ProductShape& shape, std::int64_t bytes);

// Bytes of [rows, width] of `dtype`.
inline std::int64_t bytes_of_rows(DType dtype, std::int64_t rows, std::int64_t width) {
  return rows * width * size_bytes(dtype);
}

// Rows of the members, gathered in slices while other work is done. Slice i is in parts[i] at
// ready[i]: the same rows of every member, one member after another. A slice of the rows of member
// r starts at row r * rows + ranges[i].begin of the whole.
struct GatheredSlices {
  std::int64_t rows = 0;  // of each member
  std::vector<RowRange> ranges;
  std::vector<Tensor> parts;
  std::vector<Event> ready;

  // Starts to gather mine [n/t, w] in at most `slices` slices.
  GatheredSlices(Context& context, const Tensor& mine, Communicator& group, int slices);
  bool whole() const { return ranges.size() == 1; }
};

// Calls `use`(rows of the whole, the tensor of these rows) for all rows of several slices: for own
// rows of `mine` first, while the first slice is gathered. Frees each slice after it.
template <typename Use>
void for_rows_of_slices(Context& context, GatheredSlices& slices, const Tensor& mine, int rank,
                        const Use& use) {
  for (const RowRange& range : slices.ranges) {
    use(RowRange{rank * slices.rows + range.begin, range.size},
        mine.slice(0, range.begin, range.size));
  }
  for (std::size_t i = 0; i < slices.ranges.size(); ++i) {
    context.await(slices.ready[i]);
    const RowRange& range = slices.ranges[i];
    const Tensor part = std::move(slices.parts[i]);
    const auto members = static_cast<int>(part.dim(0) / range.size);
    for (int member = 0; member < members; ++member) {
      if (member == rank) continue;
      use(RowRange{member * slices.rows + range.begin, range.size},
          part.slice(0, member * range.size, range.size));
    }
  }
}

// The adapters of one pass, with what their backward functions read.
struct PassAdapters {
  std::vector<LinearAdapter> list = {};  // drawn_adapters()
  std::vector<Tensor> inputs = {};       // adapter_inputs() of all rows; empty after keep()
  std::vector<Kept> kept = {};           // the same

  void keep(Tape& tape) {
    for (const Tensor& input : inputs) kept.push_back(tape.keep(input));
    inputs.clear();
  }
};

}  // namespace piton
