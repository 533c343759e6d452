// A gated short convolution in place of attention, as LFM2 has it (Amini et al. 2025,
// arXiv:2511.23404, section 2):
//
//   [b | c | v] = x W_in                   each as wide as x
//   y           = c convolution(b v)       causal, of each channel; products of elements
//   result      = y W_out
//
// Each tensor rank has 1 / t of the channels of b, c and v. Context ranks divide those of the
// convolution, which reads rows in order: an all-to-all of the products b v gives each rank whole
// samples of some channels, and another one gives the results back.
#pragma once

#include <string>

#include "nn/attention.h"
#include "ops/recurrent/delta_rule.h"

namespace piton {

struct ShortConvolutionShape {
  std::int64_t hidden = 0;  // h
  std::int64_t width = 0;   // w, of the convolution
  bool biases = false;      // of the convolution and both linears
  double output_factor = 1;
  double hidden_dropout = 0;           // probability
  const Adapters* adapters = nullptr;  // of both linears; read by the constructor; null: none
};

class ShortConvolution {
 public:
  ShortConvolution(ParameterList& parameters, const Shard& shard, const std::string& name,
                   const ShortConvolutionShape& shape, const BranchInitialization& initialization);
  // residual + dropout(y W_out). x, residual and the result: [b*s, h], under sequence parallelism
  // this rank's [b*s/t, h]. Of the input it reads the samples, their segments, and the states.
  Value forward(Context& context, const Value& x, const Value& residual,
                const AttentionInput& input) const;

 private:
  // Of rows [n, h/t].
  Value filtered(Context& context, const Value& rows, const AttentionInput& input) const;
  Value filtered_over_ranks(Context& context, const Value& rows, const AttentionInput& input) const;
  // Those of channels from `begin` on.
  FilterParameters filters_from(std::int64_t begin) const;

  Shard shard_;
  ShortConvolutionShape shape_;
  std::string output_site_;
  ColumnLinear input_;
  Parameter* filters_;                  // [h/t, w]
  Parameter* filter_biases_ = nullptr;  // [h/t], with biases
  RowLinear output_;
};

}  // namespace piton
