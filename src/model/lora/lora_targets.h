// The names of modules that get low-rank adapters (LoRA), and the linears of a layer that they
// mean. Names are those of Hugging Face's and of Megatron's models. A name means the same linear in
// all of them, whatever program the weights come from:
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
// In a model with experts those of MLPs are of every MLP: of each expert, of what is next to them,
// and of layers without experts. Three words before a name choose one kind:
//
//   experts.down_proj           of each expert
//   shared_experts.down_proj    of the MLP next to them (shared_expert.down_proj)
//   mlp.down_proj               of layers without experts
//
// Of latent attention, in which each adapter is of one matrix:
//
//   query                     q_proj linear_q_proj; where it has a latent q_b_proj linear_q_up_proj
//                             linear_qb, and its small rows q_a_proj linear_q_down_proj
//   latent of keys, values    kv_a_proj_with_mqa linear_kv_down_proj
//   keys and values           kv_b_proj linear_kv_up_proj linear_kvb
//   what reads the input      linear_qkv: small rows of queries, or queries, and the latent
//
// Of layers with the gated delta rule (nn/recurrent/delta_attention.h), of whose output out_proj is
// then the name alone:
//
//   query, key, value         in_proj_qkv
//   the same and the gate     in_proj_qkvz
//   gate                      in_proj_z
//   strength                  in_proj_b
//   decay                     in_proj_a
//   strength and decay        in_proj_ba
//   all of these              in_proj
//
// Of short convolutions (nn/recurrent/short_convolution.h) in_proj is all that reads the input, and
// out_proj the output, with that of attention.
//
// Of encoders they are those of BERT, and mean what they mean in PEFT: query, key, value,
// attention.output.dense, intermediate.dense, output.dense (of attention and of the MLP),
// pooler.dense (RoBERTa's is in its head), dense (all four).
//
// An adapter of several matrices has one A for all of them. all-linear is one adapter for each
// linear of the family as Hugging Face has it: of query, key and value together in gpt2 and bloom,
// of single matrices in the others; of the gated delta rule in_proj_qkvz and in_proj_ba in
// qwen3_next, else the four of Qwen 3.5. Routers and gates of shared experts have none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace piton {

// An adapter outside of layers, of an encoder.
inline constexpr const char* kPoolerAdapter = "pooler";

// Adapters of a layer (nn/adapters.h: "attention.query", "mlp.down") that a name means, of which a
// layer has some, and kPoolerAdapter. Those of experts are named without their number
// ("mlp.experts.down"). Empty: the model has none of this name.
std::vector<std::string> lora_target(const ModelConfig& config, const std::string& name);

// The names without a word before them, ascending.
std::vector<std::string> lora_target_names(const ModelConfig& config);

// Whether the layer has the linear of this adapter ("delta.qkv", "mlp.experts.down").
bool layer_has_adapter(const ModelConfig& config, std::int64_t layer, const std::string& adapter);

// Whether an adapter of a layer is of experts ("mlp.experts.down", "mlp.experts.3.down").
bool is_of_experts(std::string_view adapter);

}  // namespace piton
