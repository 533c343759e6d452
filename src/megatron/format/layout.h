// How Megatron-LM divides a model into files, and which parts each tensor has. Used for reading and
// for writing.
//
// Rank (t, p) of T x P has the layers of its chunks, numbered from 0 in each chunk. With V chunks a
// rank, chunk v of stage p holds layers [(v P + p) l, (v P + p + 1) l) with l = L / (P V).
// MindSpeed has stages of different lengths, and places of layers that are empty: both count as
// layers here. So does each letter of --hybrid-override-pattern, which has one of its layer's two
// halves: what it begins with, or its MLP.
//
//   tensor     rows of rank t
//   embedding  V/T rows of the table, padded with copies of its last row
//   qkv        version >= 2:  for each of g/T groups   a/g heads of q (with an output gate a/g of
//                             gates), one of k, one of v
//              version 1:     [a/T, d, 3]: row 3 (head d + i) + {q, k, v}
//              version 0:     [3, a/T, d]
//   fc1        f/T rows of up; gated: f/T rows of gate, then f/T of up
//   dense, fc2 all rows, of columns [t c, (t + 1) c)
//   norms, biases of dense and fc2: whole, on every rank
//   sinks      of a/T heads
//   router, shared_gate  whole, on every rank; router.bias is of the choice, and fp32;
//              router.logit_bias of the logits
//   experts.E.fc1, experts.E.fc2, shared_fc1, shared_fc2   as fc1 and fc2
//              (experts: of the rank t mod X of X, if each is split over X ranks alone)
//   q_proj, or q_up    of latent attention: rows of a/T heads; kv_up: for each, its own rows of k,
//              then those of v
//   q_down, kv_down    rows, or whole on every rank
//   q_up_norm, kv_up_norm   of them: whole, on every rank
//   qkv        with joined_latents, in place of q_down (or q_proj) and kv_down: the rows of both,
//              whole on every rank
//   q_own, q_turned, k_own, v_up   with apart_heads, in place of q_up and kv_up: for each of a/T
//              heads its rows of q without positions, of q with them, of k, of v
//   mtp.layers.N.projection   of a layer that predicts later tokens: rows; the rest of such a layer
//              as of others. They are on the last rank, which then has the embedding again
//   state_norm  before the gated delta rule: whole, on every rank, as the norm of others
//   delta_in   1/T of the rows of each of q, k, v, the gate, strengths (beta), decays (alpha); with
//              apart_states: delta_in.weight.query, .key, .value, .z, .beta, .alpha
//   delta_filter   the same of filters of q, k and v: [channels, 1, width]
//   delta_rate, delta_bias   1/T of the heads of values
//   delta_norm whole, on every rank; gain - 1 where the other norms are so (norm_gains.h)
//   delta_out  as dense
//   mamba_start_norm  before Mamba-2: whole, on every rank
//   mamba_in   1/T of the rows of each of the gate, values, keys, queries, steps; with
//   apart_states:
//              mamba_in.weight.z, .x, .B, .C, .dt
//   mamba_filter   the same of filters of values, keys and queries, and of their biases
//   mamba_rate, mamba_skip, mamba_bias, mamba_norm   1/T of the heads, or of their channels
//   mamba_out  as dense
//   cross_q    of attention to an encoder: rows of rank t of the queries
//   cross_kv   for each of a/T heads: its rows of k, then of v
//   output.bias  of the logits: V/T of them, padded with zeros
//   lm_dense, lm_norm, pooler, binary_head  of an encoder: whole, on every rank
//
// Expert rank e of R has experts [e n, (e + 1) n) of each layer with experts, n = experts / R,
// which are numbered from 0 in its files; and all other tensors, like the other expert ranks. Keys
// have the numbers of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/assembly.h"
#include "megatron/format/names.h"
#include "model/config.h"

namespace piton {

struct MegatronLayout {
  int tensor = 1;
  int pipeline = 1;
  int chunks = 1;         // of each pipeline rank: virtual stages
  int expert = 1;         // ranks that the experts of a layer are divided over
  int expert_tensor = 0;  // ranks that an expert is split over, a divisor of `tensor`; 0: all
  double version = 3;
  std::int64_t padded_vocabulary = 0;  // rows of the whole table
  bool fused_mlp = true;  // gate and up are one tensor (fc1); AscendSpeed has them apart too
  // Small rows of latent attention: as Megatron-core's own layers, or whole on every rank, as
  // those of Transformer Engine.
  bool split_latents = true;
  // As MindSpeed-LLM has them: the matrices of small rows are one, and whole on every rank; and
  // those after them are apart for keys, values and both kinds of channels (--mla-mm-split).
  bool joined_latents = false;
  bool apart_heads = false;
  bool apart_states =
      false;              // parts of tensors of layers with states are tensors, as in torch_dist
  bool head_copy = true;  // a tied head on another stage than the embedding is written again
  std::vector<std::int64_t> stage_layers;  // of each pipeline rank; empty: all alike
  std::vector<std::int64_t> empty_layers;  // places without a layer, ascending ("noop")

  // Throws Error(kUsage) with the size that is not divisible.
  void check(const ModelConfig& model) const;
};

MegatronStacks megatron_stacks(const ModelConfig& model);

// Places of layers in these files: letters, where a pattern has letters.
std::int64_t megatron_layer_count(const ModelConfig& model);

// A layer of the model, or one of its halves, and its number in the chunk that holds it.
struct PlacedLayer {
  std::int64_t local = 0;
  std::int64_t layer = 0;
  bool mixer = true;  // what it begins with
  bool mlp = true;
};

// Of chunk `chunk` of stage p.
std::vector<PlacedLayer> megatron_layers(const ModelConfig& model, const MegatronLayout& layout,
                                         int p, int chunk);

// One tensor of a rank's chunk, under its own name: "layers.0.qkv.weight", "word_embeddings",
// ... (megatron/format/names.h).
struct MegatronTensor {
  std::string key;
  Assembly assembly;

  // Of the tensor in files.
  Shape shape() const;
};

// The tensors of chunk `chunk` on rank (t, p), of all expert ranks. `assembly.name` is empty.
std::vector<MegatronTensor> megatron_tensors(const ModelConfig& model, const MegatronLayout& layout,
                                             int t, int p, int chunk);

// The norms that no linear of Transformer Engine holds: before experts, and in front of latent
// attention.
class NormsApart {
 public:
  // Of a model, or of a chunk of it.
  NormsApart(const ModelConfig& model, const std::vector<MegatronTensor>& tensors);
  bool contain(std::string_view key) const;

 private:
  bool latent_;
  std::set<std::string, std::less<>> with_experts_;  // "layers.3."
};

// Those that expert rank `expert` has of them, under the keys of its files.
std::vector<MegatronTensor> tensors_of_expert_rank(std::vector<MegatronTensor> tensors,
                                                   const ModelConfig& model,
                                                   const MegatronLayout& layout, int expert);

// The type in which a tensor is written: `chosen`, or else that which holds its parts (`stored`: by
// canonical name). A bias of the choice of experts is always fp32.
DType written_dtype(const Assembly& tensor, std::optional<DType> chosen,
                    const std::map<std::string, DType>& stored);

// `vocabulary` rounded up to a multiple of `multiple` * tensor.
std::int64_t megatron_padded_vocabulary(std::int64_t vocabulary, std::int64_t multiple, int tensor);

}  // namespace piton
