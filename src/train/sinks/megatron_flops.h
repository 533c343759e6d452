// Megatron's own count of the arithmetic of a training step, for its figure "TFLOPs" in the log
// (megatron/utils.py of Megatron-DeepSpeed and AscendSpeed):
//
//   24 c s L h^2 (1 + s / 6h + V / 16Lh)      of a sample; c = 3, or 4 where backward computes
//                                             whole layers again
//
// It takes every MLP to be two matrices of 4h and every head to have its own keys and values. The
// counts of metrics.jsonl are those of the model that is trained (ModelConfig).
#pragma once

#include <cstdint>

#include "model/layout.h"

namespace piton {

// `layout`: its rows of the table of tokens, and what backward computes again.
double megatron_flops(const ModelConfig& model, const LayoutOptions& layout, std::int64_t sequence);

}  // namespace piton
