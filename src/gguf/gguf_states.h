// Layers of Mamba-2 (nn/recurrent/state_space.h) in GGUF files, and layers with short convolutions
// (nn/recurrent/short_convolution.h).
//
//   ssm.conv_kernel          rows that the convolution reads
//   ssm.state_size           channels of a key, and of a query
//   ssm.group_count          groups of heads with the same keys and queries
//   ssm.time_step_rank       heads
//   ssm.inner_size           channels of the values of all heads
//   attention.head_count_kv  of models that also have attention a list: of each layer the number of
//                            key-value heads, 0 in layers of Mamba-2 and with convolutions
//   feed_forward_length      where each letter of a pattern is a block (Nemotron-H) a list too: of
//                            each the width of its MLP or of its experts, 0 in others
//
//   ssm_in            rows of gate, value, key, query and step
//   ssm_conv1d        filters [channels, w] of value, key and query, and their biases
//   ssm_a [heads, 1]  -exp(rate)           ssm_dt    the bias of the steps
//   ssm_d [heads, 1]  the skip             ssm_norm  [groups, channels of a group]
//   ssm_out           the output
//
//   shortconv.l_cache  rows that a short convolution reads
//
//   shortconv.in_proj            rows of input gate, output gate and value
//   shortconv.conv [channels, w]   the filters
//   shortconv.out_proj           the output
#pragma once

#include <string_view>

#include "gguf/gguf_keys.h"
#include "gguf/gguf_places.h"
#include "model/config.h"

namespace piton {

// Sets the state space of a model whose layers are all of Mamba-2.
void read_gguf_states(const GgufKeys& keys, ModelConfig& model);
void write_gguf_states(const ModelConfig& model, GgufDescription& out);

// GgufArchitecture::read_heads and write_heads of models that have attention in some layers. The
// former sets the state space too, the latter throws Error(kData) for what llama.cpp does not have.
void read_hybrid_heads(const GgufKeys& keys, ModelConfig& model);
void write_hybrid_heads(const ModelConfig& model, GgufDescription& out);

// The same of models with short convolutions.
void read_convolution_heads(const GgufKeys& keys, ModelConfig& model);
void write_convolution_heads(const ModelConfig& model, GgufDescription& out);

// Where each letter of a pattern is a block, of which the model's layers are as many on entry: sets
// layers, heads, the width of MLPs and the state space. Models with experts have them in place of
// all MLPs.
void read_gguf_letters(const GgufKeys& keys, ModelConfig& model);
void write_gguf_letters(const ModelConfig& model, GgufDescription& out);

// Sizes of heads, positions of attention and the width of MLPs are set to fixed values in a model
// without a layer that has them: no key says them. The width of MLPs is that of experts where only
// these have one.
void drop_parts_of_no_layer(ModelConfig& model);

// Completes the place of a tensor of Mamba-2; `part` is its canonical name after "layers.N.". Its
// name is already that of the file.
void place_states(const StateSpaceFacts& facts, std::string_view part, GgufPlace& place);

}  // namespace piton
