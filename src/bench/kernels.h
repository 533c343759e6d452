// `bench gemm`, `bench attention`, `bench optimizer`: times of single calls and their limits.
#pragma once

#include <string>
#include <vector>

#include "bench/timing.h"
#include "kernels/attention_layout.h"
#include "model/config.h"

namespace piton {

struct CallsBench {
  std::vector<CallFigure> calls;
  double peak = 0;          // FLOPs per second for the calls' dtype; 0: not measured
  double loading_peak = 0;  // the same with operands from cache; 0: no separate limit

  double seconds() const;        // sum over calls of the best time
  double share_of_peak() const;  // of all calls together; 0 if the peak is unknown
};

struct GemmSize {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
};

// Sizes of the distinct linear maps of a block of `model` on `rows` tokens, in order, without the
// head.
std::vector<GemmSize> gemm_sizes(const ModelConfig& model, std::int64_t rows);

// Forward, input gradient and weight gradient of each size. Each round measures the peak, then
// every call.
CallsBench bench_gemm(const Machine& machine, const std::vector<GemmSize>& sizes, DType dtype,
                      int rounds);

struct AttentionSize {
  std::int64_t samples = 1;
  std::int64_t sequence = 0;
  AttentionLayout layout =
      AttentionLayout::kBsnd;  // of every tensor; TND packs the samples into one row
};

// Causal attention, forward and backward, with the heads, window, slopes and triangle blocks of
// `model`.
CallsBench bench_attention(const Machine& machine, const ModelConfig& model,
                           const AttentionSize& size, int rounds);

struct OptimizerBench {
  Samples update;
  Samples loop;  // the same reads and writes without the formula; empty if not on the host
  std::int64_t bytes = 0;  // read and written by one update
};

// AdamW on `elements` fp32 weights, with a bf16 copy if `dtype` is bf16.
OptimizerBench bench_optimizer(const Machine& machine, std::int64_t elements, DType dtype,
                               int rounds);

}  // namespace piton
