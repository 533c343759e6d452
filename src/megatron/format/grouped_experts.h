// The experts of a rank in one tensor, as products of several experts read them: Megatron-core's
// GroupedMLP (--moe-grouped-gemm with --moe-use-legacy-grouped-gemm), and MindSpeed-LLM's experts
// with --moe-grouped-gemm. Of n experts, with f' columns of each on the rank (gated: 2 f'):
//
//   weight1, grouped.G.fc1   [h, n 2f']   the bytes of [n, h, 2f']: the first matrices, transposed
//   weight2, grouped.G.fc2   [n f', h]    the bytes of [n, f', h]: the second ones, transposed
//
// G: number of the expert rank.
//
// Source: megatron/core/transformer/moe/experts.py of Megatron-core 0.16.
#pragma once

#include <string>

#include "megatron/format/megatron_files.h"
#include "model/config.h"

namespace piton {

// The tensors with each expert by itself, under its own key. Throws Error(kData) with `where` and
// the key of a group that the experts of the model do not fill.
BoxedTensors with_experts_apart(BoxedTensors tensors, const ModelConfig& model,
                                const std::string& where);

}  // namespace piton
