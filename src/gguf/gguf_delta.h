// The gated delta rule (kernels/recurrent/delta_rule.h) in GGUF files.
//
//   ssm.conv_kernel             rows that the convolution reads
//   ssm.state_size              channels of a key, and of a value
//   ssm.group_count             heads of keys
//   ssm.time_step_rank          heads of values
//   ssm.inner_size              channels of all values
//   full_attention_interval     N: layers N, 2 N, ... have attention (missing: 4)
//   attention.recurrent_layers  in its place, a list of a flag for each layer: whether it has the
//                               rule; also for layers that predict later tokens
//
//   attn_qkv    query, key and value    attn_gate   the gate of the result
//   ssm_conv1d  filters [channels, w]   ssm_a       -exp(rate)
//   ssm_dt      the bias of the decay   ssm_norm, ssm_out
//
// and, by the form, decay and strength. The attention of such models has a gate: in attn_q the
// queries of each head and its gate alternate.
#pragma once

#include <cstdint>
#include <string_view>

#include "gguf/gguf_keys.h"
#include "gguf/gguf_places.h"
#include "model/config.h"

namespace piton {

// Sets the rule in a model whose number of layers is set.
void read_gguf_delta(const GgufKeys& keys, ModelConfig& model);
// The inverse. Throws Error(kData) for what llama.cpp does not have.
void write_gguf_delta(const ModelConfig& model, GgufDescription& out);

// Completes the place of a tensor of the rule, or of attention with a gate; `part` is its canonical
// name after "layers.N.". Its name is already that of the file.
void place_delta(const GgufArchitecture& architecture, const ModelConfig& model,
                 std::string_view part, GgufPlace& place);

}  // namespace piton
