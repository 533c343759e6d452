// A low-rank adapter of a split linear (LoRA, Hu et al. 2021, arXiv:2106.09685). Its product is
// added to that of the weight, before the activation of a column linear, and before the sum over
// the ranks, bias, dropout and residual of a row linear:
//
//   y = x W^T + scale (dropout(x) A^T) B^T
//
//             A on one rank   B on one rank   of which the gradient is partial over the group
//   column    [r, h]          [f/t, r]        A: each rank has the columns of y of its rows of B
//   row       [r, h/t]        [f, r]          B: each rank has its columns of x
//
// Nothing but what the linear sends anyway has to be summed. Row: each rank adds B (A_local
// x_local) to its product, and the sum of the linear completes both, because B is linear. Column:
// dx of W and of A are summed in one collective. Only under sequence parallelism there are two
// more, of r numbers for each token: column gathers x A^T, which each rank computes for its
// tokens, and reduce-scatters the gradient of that for the gradient of A. So x itself is gathered
// for the product with W in forward, and not in backward if W is frozen.
//
// The functions of this header are steps of column_linear and row_linear.
//
// With a magnitude m (DoRA, Liu et al. 2024, arXiv:2402.09353), each row of the weight has the
// direction of W + scale B A and the length m:
//
//   y_j = m_j / |W_j + scale B_j A| (x W^T + scale x A^T B^T)_j + bias_j
//
// The length in the denominator counts as a constant in backward, as in the paper and in PEFT. The
// factor of a column is a separate op after the linear, with_magnitudes(). A row linear has parts
// of all rows: there the squares of lengths are summed over the group. Dropout of such adapters is
// that of nn/linear.cpp: the linear gets its masked input.
//
// Without a tape, adapters may be those of some rows alone, so that one pass has the rows of texts
// with different adapters. Their products are over these rows.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "ops/row_ranges.h"
#include "ops/tape.h"

namespace piton {

// The squares of the lengths of the rows of W + scale B A, of which a layer keeps the latest ones.
struct AdaptedLengths {
  Tensor squares;                           // [out], fp32 (fp64); empty: not measured yet
  std::array<std::uint64_t, 3> versions{};  // of W, A and B that they belong to
};

struct LinearAdapter {
  Parameter& a;  // [r, in]
  Parameter& b;  // [out, r]
  double scale = 1;
  Dropout dropout;                 // of x; its rows are those of the micro-batch that x holds
  std::int64_t first_output = 0;   // B adds to columns first_output .. first_output + out - 1 of y
  Parameter* magnitude = nullptr;  // [out]; null: LoRA
  std::shared_ptr<AdaptedLengths> lengths;  // given exactly if `magnitude` is
  std::optional<RowRange> rows;             // of x that have it; nothing: all
};

// scale dropout(x) A^T of each adapter, [n, r], of its rows alone. x [n, in].
std::vector<Tensor> adapter_inputs(Context& context, const std::vector<LinearAdapter>& adapters,
                                   const Tensor& x);

// y = residual + the products of B. y [n, f]; residual [n, f] or empty: 0; it may be y itself.
// Elements that no adapter adds to are those of the residual.
// `inputs`: adapter_inputs() of the rows of y.
void write_adapter_outputs(Context& context, const std::vector<LinearAdapter>& adapters,
                           const std::vector<Tensor>& inputs, const Tensor& y,
                           const Tensor& residual);

// The adapters of a range of rows, and the rows of their inputs: their rows are counted from the
// beginning of the range. Adapters of none of these rows are left out.
struct AdaptersOfRows {
  std::vector<LinearAdapter> list;
  std::vector<Tensor> inputs;
};
AdaptersOfRows adapters_of_rows(const std::vector<LinearAdapter>& adapters,
                                const std::vector<Tensor>& inputs, const RowRange& range);

// The gradients of adapter_inputs() without their scale, which is in the result: scale dy B of each
// adapter, [n, r]. dy [n, f].
std::vector<Tensor> adapter_input_gradients(Context& context,
                                            const std::vector<LinearAdapter>& adapters,
                                            const Tensor& dy);

// dx += the gradients of x: `input_gradients` A, masked by the dropout. dx [n, in], of the rows
// that start at row `first_row` of the micro-batch.
void add_adapter_dx(Context& context, const std::vector<LinearAdapter>& adapters,
                    const std::vector<Tensor>& input_gradients, const Tensor& dx,
                    std::int64_t first_row);

// A weight job: dA += input_gradients^T dropout(x). x [n, in], as given to adapter_inputs().
void add_gradient_of_a(Context& context, const std::vector<LinearAdapter>& adapters,
                       const std::vector<Tensor>& input_gradients, const Tensor& x);

// A weight job: dB += dy^T inputs. dy [n, f].
void add_gradient_of_b(Context& context, const std::vector<LinearAdapter>& adapters,
                       const std::vector<Kept>& inputs, const Tensor& dy);

// Measures the rows of each adapter with a magnitude, if values have changed since the last time.
// To be called before the linear: in a session for inference, plain rows of `weight` go when it
// packs them. `columns`: the group over which the columns of `weight` are split; null: none.
void measure_rows(Context& context, Parameter& weight, const std::vector<LinearAdapter>& adapters,
                  Communicator* columns);

// The columns of x [n, f] that belong to adapters with a magnitude, at that length
// (kernels/magnitude.h); x itself if there are none. x: the result of the linear, after `bias` if
// that is given. Without a tape the result is in the memory of x.
Value with_magnitudes(Context& context, const Value& x, const std::vector<LinearAdapter>& adapters,
                      Parameter* bias);

// Without their dropout if the context is not one of training; none if it is one without adapters.
std::vector<LinearAdapter> drawn_adapters(const Context& context,
                                          std::vector<LinearAdapter> adapters);

}  // namespace piton
