// The table of one instruction set.
#include "kernels/cpu/vector/table.h"

#include "kernels/cpu/vector/attention.h"
#include "kernels/cpu/vector/elementwise.h"
#include "kernels/cpu/vector/muon.h"
#include "kernels/cpu/vector/peak.h"
#include "kernels/cpu/vector/recurrent.h"
#include "kernels/cpu/vector/rows.h"

namespace piton::cpu::PITON_ISA {

const VectorTable& table() {
  static constexpr VectorTable kTable{
      .lanes = PITON_VECTOR_BYTES / 4,
      .convert = convert,
      .add = add,
      .scale = scale,
      .soft_cap = soft_cap,
      .soft_cap_gradient = soft_cap_gradient,
      .accumulate = accumulate,
      .column_sums = column_sums,
      .norm_forward = norm_forward,
      .norm_backward = norm_backward,
      .activation_forward = activation_forward,
      .activation_backward = activation_backward,
      .finish = finish,
      .dropout_add = dropout_add,
      .rotary = rotary,
      .convolution_forward = convolution_forward,
      .convolution_backward = convolution_backward,
      .delta_forward = delta_forward,
      .loss_statistics = loss_statistics,
      .loss_gradient = loss_gradient,
      .adamw = adamw,
      .sgd = sgd,
      .muon_momentum = muon_momentum,
      .muon_normalize = muon_normalize,
      .muon_update = muon_update,
      .square_sums = square_sums,
      .product = product,
      .transpose = transpose,
      .softmax_step = softmax_step,
      .softmax_again = softmax_again,
      .mask = mask,
      .add_noise = add_noise,
      .score_gradient = score_gradient,
      .dot = dot,
      .fma_loop = fma_loop,
      .loading_fma_loop = loading_fma_loop,
  };
  return kTable;
}

}  // namespace piton::cpu::PITON_ISA
