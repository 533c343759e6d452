// The linears of a model that low-rank adapters can be of, and the names of modules that mean them.
//
// Names are those of Hugging Face's and of Megatron's models. A name means the same linear in all
// of them, whatever program the weights come from:
//
//   adapter of        names
//   query             q_proj; with its gate, if attention has one, as Hugging Face has it
//   key               k_proj
//   value             v_proj
//   all of these      query_key_value linear_qkv qkv_proj c_attn W_pack wqkv
//   attention output  o_proj dense linear_proj out_proj wo
//   gate              gate_proj w1
//   up                up_proj w3 c_fc
//   gate and up       gate_up_proj
//   up, or both       linear_fc1 dense_h_to_4h
//   down              down_proj linear_fc2 dense_4h_to_h w2
//   both outputs      c_proj
//
// Of layers with the gated delta rule (nn/delta_attention.h), of whose output out_proj is then the
// name alone:
//
//   query, key, value         in_proj_qkv
//   the same and the gate     in_proj_qkvz
//   gate                      in_proj_z
//   strength                  in_proj_b
//   decay                     in_proj_a
//   strength and decay        in_proj_ba
//   all of these              in_proj
//
// Of encoders they are those of BERT, and mean what they mean in PEFT: query, key, value,
// attention.output.dense, intermediate.dense, output.dense (of attention and of the MLP),
// pooler.dense (RoBERTa's is in its head), dense (all four).
//
// An adapter of several matrices has one A for all of them. all-linear is one adapter for each
// linear of the family as Hugging Face has it: of query, key and value together in gpt2 and bloom,
// of single matrices in the others; of the gated delta rule in_proj_qkvz and in_proj_ba in
// qwen3_next, else the four of Qwen 3.5. Experts have no adapters, so all-linear are those of
// attention in such a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "nn/adapters.h"

namespace piton {

inline constexpr const char* kPooler = "pooler";  // an adapter outside of layers, of an encoder

// From the name of a module to adapters of a layer (nn/adapters.h: "attention.query", "mlp.down"),
// of which a layer has some, and to kPooler.
std::map<std::string, std::vector<std::string>> lora_targets(const ModelConfig& config);

// Whether layer `layer` has the linear of this adapter ("delta.qkv").
bool layer_has(const ModelConfig& config, std::int64_t layer, const std::string& adapter);

// Throws Error(kData) for adapters that the model has, and does not compute: of experts, what is
// next to them, and latent attention before its output. Merging needs no check. `where`: the files.
void check_computed(const ModelConfig& config, const Adapters& adapters, const std::string& where);

}  // namespace piton
