// The description of a model by its family and its sizes, independent of the layout. All
// architectures share it; `encoder` holds what only encoders have, `encoder_decoder` what only
// models of both have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "kernels/kernels.h"
#include "model/attention_options.h"
#include "model/encoder_decoder_options.h"
#include "model/encoder_options.h"
#include "model/label_head.h"
#include "model/mlp_options.h"
#include "model/rotary.h"
#include "nn/attention.h"
#include "nn/norm.h"

namespace piton {

enum class PositionKind : std::uint8_t { kLearned, kRotary, kAlibi, kRelative, kNone };

// What ALiBi adds to the score of a query at i and a key at j, times the slope of a head
// (model/attention_options.h).
enum class AlibiKind : std::uint8_t { kDifference, kDistance, kRootOfDistance };

struct ModelConfig {
  std::string family;           // "gpt2", "llama", ...
  std::int64_t layers = 0;      // L
  std::int64_t hidden = 0;      // h
  std::int64_t ffn_hidden = 0;  // f, of each of gate and up
  std::int64_t heads = 0;       // a
  std::int64_t groups = 0;      // g, key-value heads
  std::int64_t head_size = 0;   // d
  std::int64_t vocabulary = 0;  // V, unpadded
  std::int64_t max_positions = 0;
  NormKind norm = NormKind::kLayer;
  double norm_eps = 1e-5;
  bool norm_biases = true;  // of layer norms
  bool norm_gains = true;   // of all norms but those of latents and states (OLMo)
  PositionKind positions = PositionKind::kLearned;
  double rotary_base = 10000;
  std::optional<double> local_rotary_base;  // base for layers with the window, without scaling;
                                            // none: same as other layers
  double rotary_share = 1;       // share of each head's channels that is rotated; the first ones
  bool rotary_pairs = false;     // kernels/rotary.h, Convention
  bool rotary_reversed = false;  // rotated by the opposite angles (nanochat)
  RotaryScaling rotary_scaling;
  std::int64_t no_rotary_every = 0;           // N: layers N, 2 N, ... have no positions
  std::optional<std::int64_t> window_before;  // query i sees keys j >= i - window_before
  std::optional<std::int64_t> window_after;   // and j <= i + window_after, and j <= i
  std::int64_t full_attention_every = 0;      // N: layers N, 2 N, ... have no window
  std::int64_t full_attention_first = 0;      // F < N: layers F, F + N, ... in their place (CWM)
  std::optional<double> query_scalar;         // scores are divided by its root; none: head_size
  std::optional<double> score_factor;         // in its place: scores are multiplied by it (Granite)
  double attention_soft_cap = 0;              // c: scores become c tanh(score / c); 0: no cap
  double logit_soft_cap = 0;                  // the same for logits
  SoftmaxKind softmax = SoftmaxKind::kVanilla;  // of attention (nn/attention.h)
  AlibiKind alibi = AlibiKind::kDifference;
  bool prefix = false;               // tokens up to the first label of a text see one another
  std::int64_t attention_block = 0;  // rows of a block in the triangle form; 0: tiles
  ActivationKind activation = ActivationKind::kGeluTanh;
  bool gated = false;       // gate and up projections
  GateRule gate_rule;       // then how they are joined (kernels/activation.h)
  bool biases = true;       // of the MLP's linears; of experts and the logits of their router
  bool output_bias = true;  // of attention's output projection
  bool qkv_biases = true;
  bool head_norms = false;          // RMS norms of each head of query and key, or of latents
  bool joint_head_norms = false;    // then one of all heads of query, one of all of key (OLMo 2)
  bool norms_after_rotary = false;  // head_norms are after positions (Hunyuan)
  bool gains_from_one = false;      // norm weights are stored as gain - 1
  bool end_norms = false;           // also a norm at the end of each branch
  bool start_norms = true;          // norms at the beginning of branches; without them: end_norms
  double branch_factor = 1;         // of what each branch adds to the residual stream (Granite)
  // x + attention(norm(x)) + mlp(norm(x)), in place of one branch after the other (GPT-NeoX).
  bool parallel_residual = false;
  bool single_norm = false;       // then both branches have the norm of attention
  bool scaled_embedding = false;  // token embeddings are multiplied by sqrt(h)
  double embedding_factor = 1;    // in its place: of the token embeddings (Granite)
  bool embedding_norm = false;    // a norm of kind `norm` after the embedding
  bool normalized_head = false;   // each row of the head is divided by its length
  double logit_divisor = 1;       // logits are divided by it, before their cap (Granite)
  bool tied = true;               // head = token embedding
  bool head_bias = false;         // logits have a bias (GPT-J, Phi); of a decoder
  // Rows of a head in place of that over the vocabulary (model/label_head.h); 0: there is none.
  std::int64_t labels = 0;
  std::vector<std::string> label_names;  // empty: LABEL_0, LABEL_1, ...
  bool regression = false;               // it has one row, whose number is no reward
  bool several_labels = false;           // each label has a probability of its own (sigmoid)
  double hidden_dropout = 0;
  double attention_dropout = 0;
  double init_deviation = 0.02;  // divided by sqrt(2 L) for the last projection of a branch
  std::optional<double> embedding_deviation;  // of embeddings, if it is not init_deviation
  bool xavier_weights = false;  // uniform by the sizes of each matrix, in the deviation's place
  DType dtype = DType::kF32;    // of weights and activations
  bool fp32_residual = false;   // the residual stream is fp32 also where dtype is narrower
  std::optional<ExpertFacts> experts;  // in place of the MLP
  // Layers after the last one that predict later tokens in training (MTP, nn/later_tokens.h); each
  // has a block with the facts of the last layer. Their losses are in the loss of a step with
  // mtp_loss_factor / mtp_layers.
  std::int64_t mtp_layers = 0;
  double mtp_loss_factor = 0.1;
  // In place of grouped queries. Then head_size is that of queries and keys, and groups = heads.
  std::optional<LatentFacts> latent;
  // Most layers have the gated delta rule in place of attention.
  std::optional<DeltaFacts> delta;
  // Most layers are of Mamba-2 in place of attention, or have a short convolution there; not with
  // `delta`, and not both.
  std::optional<StateSpaceFacts> state_space;
  std::optional<ShortConvolutionFacts> short_convolution;
  std::vector<std::int64_t> bare_layers;  // ascending; they have no MLP and no experts
  std::vector<std::int64_t> mlp_layers;   // ascending; they have nothing else
  bool output_gate = false;               // of attention (nn/attention.h)
  // None of these two: a decoder.
  std::optional<EncoderFacts> encoder;
  std::optional<EncoderDecoderFacts> encoder_decoder;  // `layers` are those of its decoder

  bool operator==(const ModelConfig&) const = default;

  // Throws Error(kUsage) that names the flag of the first invalid field.
  void check() const;
  // Of the tensors between blocks.
  DType stream_dtype() const { return fp32_residual ? sum_dtype(dtype) : dtype; }
  // Whether ALiBi needs a table of distances, in place of slopes of heads.
  bool alibi_table() const {
    return positions == PositionKind::kAlibi && alibi != AlibiKind::kDifference;
  }
  std::int64_t rotary_channels() const {
    if (latent) return latent->turned;
    return static_cast<std::int64_t>(static_cast<double>(head_size) * rotary_share);
  }
  // Number of keys before a token that it sees in layer `layer`, within its document; unset: all.
  std::optional<std::int64_t> window_of(std::int64_t layer) const {
    const bool full =
        full_attention_every > 0 && (layer + 1) % full_attention_every == full_attention_first;
    return full ? std::nullopt : window_before;
  }
  // Whether layer `layer` has states in place of keys and values.
  bool has_states(std::int64_t layer) const {
    if (delta) return delta->in_layer(layer);
    const bool states = (state_space && state_space->in_layer(layer)) ||
                        (short_convolution && short_convolution->in_layer(layer));
    return states && has_mixer(layer);
  }
  // Whether layer `layer` begins with attention, or with what is in its place.
  bool has_mixer(std::int64_t layer) const {
    return !std::ranges::binary_search(mlp_layers, layer);
  }
  // The layers with attention of a model that a pattern of letters describes; null: none does.
  const std::vector<std::int64_t>* letters_with_attention() const {
    if (state_space) return &state_space->attention_layers;
    return short_convolution ? &short_convolution->attention_layers : nullptr;
  }
  std::int64_t state_layers() const {
    if (const std::vector<std::int64_t>* attention = letters_with_attention())
      return layers - std::ssize(*attention) - std::ssize(mlp_layers);
    return delta ? layers - layers / delta->attention_every : 0;
  }
  // Whether rotary positions rotate the heads of layer `layer`.
  bool rotates(std::int64_t layer) const {
    return positions == PositionKind::kRotary &&
           (no_rotary_every == 0 || (layer + 1) % no_rotary_every != 0);
  }
  bool gives_rewards() const { return labels == 1 && !regression && !several_labels; }
  bool gives_labels() const { return labels > 1 || several_labels; }
  // Labels of texts, or numbers: `piton classify` reads it.
  bool classifies() const { return gives_labels() || regression; }
  // Tokens of the longest text.
  std::int64_t longest_sequence() const {
    return max_positions - (encoder ? encoder->first_position : 0);
  }
  bool has_mlp(std::int64_t layer) const {  // or experts
    return !std::ranges::binary_search(bare_layers, layer);
  }
  bool has_experts(std::int64_t layer) const { return experts && experts->in_layer(layer); }
  // Layers with experts.
  std::int64_t expert_layers() const {
    return experts ? layers - static_cast<std::int64_t>(experts->dense_layers.size()) : 0;
  }
  // Those and layers with experts that predict later tokens.
  std::int64_t trained_expert_layers() const {
    return expert_layers() + (has_experts(layers - 1) ? mtp_layers : 0);
  }
  // The width of each expert of a model that has them.
  std::int64_t expert_ffn_hidden() const {
    return experts->ffn_hidden != 0 ? experts->ffn_hidden : ffn_hidden;
  }
  std::int64_t parameters() const;  // without padding; tied weights count once
  // FLOPs of the forward pass in training, per token: 2 x elements of all weights in matrix
  // products, plus attention. Causal attention counts half of all pairs; with a window, only the
  // visible ones. Of a model of an encoder and a decoder: per token of the encoder, which reads
  // `sequence` tokens of a sample; the decoder reads `decoder_sequence`, 0: as many. An encoder's
  // head for words computes the rows with a label alone, a share `labelled` of all.
  double forward_flops_per_token(std::int64_t sequence, std::int64_t decoder_sequence = 0,
                                 double labelled = 1) const;
};

// Megatron's flags for a model, and the named presets ("gpt2-124m", "llama-134m", ...).
struct ModelOptions {
  std::string model;  // preset; single flags override it
  std::optional<std::string> family;
  std::optional<std::int64_t> layers, hidden, ffn_hidden, heads, groups, head_size, vocabulary,
      max_positions;
  std::optional<double> norm_eps, hidden_dropout, attention_dropout, init_deviation,
      embedding_deviation;
  std::optional<std::string> normalization;
  bool xavier_weights = false;
  bool disable_bias_linear = false;
  bool untied = false;
  bool tied = false;
  bool qkv_biases = false;
  bool output_bias = false;
  bool mlp_biases = false;
  bool head_bias = false;
  bool head_norms = false;
  bool embedding_norm = false;
  bool normalized_head = false;
  bool gains_from_one = false;
  bool end_norms = false;
  bool parallel_residual = false;
  bool single_norm = false;
  bool no_start_norm = false;
  bool joint_head_norms = false;
  bool norms_after_rotary = false;
  bool no_norm_bias = false;
  bool no_norm_gain = false;
  bool scaled_embedding = false;
  std::optional<double> embedding_factor, branch_factor, logit_divisor;
  std::optional<double> logit_soft_cap;
  std::optional<std::int64_t> mtp_layers;
  std::optional<double> mtp_loss_factor;
  bool bf16 = false;
  bool fp16 = false;
  bool fp32_residual = false;
  AttentionOptions attention;
  RotaryOptions rotary;
  MlpOptions mlp;
  LabelOptions labels;
  EncoderOptions encoder;
  EncoderDecoderOptions encoder_decoder;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"model",
             "preset: gpt2-124m, gpt2-355m, pythia-70m, pythia-160m, pythia-410m, pythia-1b, "
             "llama-134m, llama-1.1b, llama2-7b, mixtral-8x7b, qwen1.5-0.5b, qwen1.5-moe-a2.7b, "
             "qwen2.5-0.5b, qwen3-0.6b, qwen3-30b-a3b, qwen3-next-80b-a3b, qwen3.5-0.8b, "
             "qwen3.5-9b, gpt-oss-20b, gpt-oss-120b, glm-4.5-air, deepseek-v2-lite, deepseek-v3, "
             "mamba2-130m, lfm2-350m, lfm2-700m, lfm2-1.2b, lfm2-8b-a1b, "
             "bert-110m, t5-220m; for trying out: gpt2-tiny, llama-tiny, mixtral-tiny, bert-tiny, "
             "t5-tiny",
             same},
      model);
    v(Option{"model-family",
             "gpt2, gpt_neox, bloom, llama, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, qwen3_5, "
             "qwen3_next, glm4_moe, "
             "deepseek_v2, deepseek_v3, gemma, gpt_oss, granite, olmo2, mamba2, lfm2, lfm2_moe, "
             "gptj, "
             "phi, bert, an encoder, or t5, an encoder and a decoder (default: that of --model, "
             "else gpt2)",
             same},
      family);
    v(Option{"num-layers", "number of transformer blocks", same}, layers);
    v(Option{"hidden-size", "width of the residual stream", same}, hidden);
    v(Option{"ffn-hidden-size", "width inside the MLP", same}, ffn_hidden);
    v(Option{"num-attention-heads", "number of query heads", same}, heads);
    v(Option{"num-query-groups", "number of key-value heads (default: all heads)", same}, groups);
    v(Option{"kv-channels", "width of one attention head", same}, head_size);
    v(Option{"vocab-size", "number of token ids (default: from the tokenizer)", same}, vocabulary);
    v(Option{"max-position-embeddings", "longest sequence in tokens", same}, max_positions);
    v(Option{"norm-epsilon",
             "number added under the square root of norms",
             {.aliases = {"layernorm-epsilon"}, .resume = Resume::kMustMatch}},
      norm_eps);
    v(Option{"normalization",
             "norm of the residual stream (default: that of the family)",
             {.resume = Resume::kMustMatch, .choices = {"LayerNorm", "RMSNorm"}}},
      normalization);
    v(Option{"disable-bias-linear", "use linear layers without biases (llama: always)", same},
      disable_bias_linear);
    v(Option{"untie-embeddings-and-output-weights",
             "give the output head a separate table (default for llama, qwen2 and qwen3)", same},
      untied);
    v(Option{"tie-embeddings-and-output-weights",
             "use the token embedding as output head (default for gpt2, bloom and gemma)", same},
      tied);
    rotary.visit(v);
    v(Option{"hidden-dropout", "dropout rate after attention, MLP, embedding", same},
      hidden_dropout);
    v(Option{"attention-dropout", "dropout rate of attention probabilities", same},
      attention_dropout);
    visit_initial_weights(v);
    visit_biases(v);
    v(Option{"embed-layernorm", "add a norm after the token embedding (Bloom)", same},
      embedding_norm);
    v(Option{"normalized-head",
             "divide each row of the output head by its length before use (Baichuan-2)", same},
      normalized_head);
    labels.visit(v);
    v(Option{"apply-layernorm-1p",
             "store the gain of a norm as its difference from 1 (Gemma)",
             {.aliases = {"add-rmsnorm-offset"}, .resume = Resume::kMustMatch}},
      gains_from_one);
    visit_branches(v);
    v(Option{"input-embeds-norm",
             "multiply the embedding by the square root of --hidden-size (Gemma)", same},
      scaled_embedding);
    visit_factors(v);
    v(Option{"output-logit-softcapping",
             "cap c of logits: x becomes c tanh(x / c) (Gemma 2; default: no cap)", same},
      logit_soft_cap);
    visit_norms(v);
    visit_later_tokens(v);
    visit_precision(v);
    attention.visit(v);
    mlp.visit(v);
    encoder.visit(v);
    encoder_decoder.visit(v);
  }

  // The preset with the flags applied; checked. `tokenizer_vocabulary` is used if --vocab-size is
  // not given.
  ModelConfig resolve(std::optional<std::int64_t> tokenizer_vocabulary) const;
  // What `config`, the result of resolve(), has other than the preset of --model: sizes that were
  // given, and those that follow from them. "": nothing, or no preset is named.
  std::string changes_of_preset(const ModelConfig& config) const;
  // Sets every option that has a derived default to its value in `config`, the result of
  // resolve(). A stored configuration needs this: resolving it again gives the same model.
  void settle(const ModelConfig& config);
  // Whether any flag but that of the vocabulary was given.
  bool describes_model() const;
  // The flags of `config`, without its dtype and that of its residual stream. If flags express all
  // of it, resolve() gives `config`.
  static ModelOptions of(const ModelConfig& config);

 private:
  template <typename Visitor>
  void visit_norms(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"no-norm-bias", "layer norms have gains alone, no biases (Cohere)", same},
      no_norm_bias);
    v(Option{"no-norm-gain",
             "norms have no gains; layer norms need --no-norm-bias too (OLMo, nanochat)", same},
      no_norm_gain);
    v(Option{"qk-layernorm", "normalize heads of query and key before positions", same},
      head_norms);
    v(Option{"qk-layernorm-joint",
             "with --qk-layernorm: one norm of all heads of query together, and one of all of key "
             "(OLMo 2)",
             same},
      joint_head_norms);
    v(Option{"qk-layernorm-after-rope",
             "with --qk-layernorm: normalize heads after positions, not before them (Hunyuan)",
             same},
      norms_after_rotary);
  }

  template <typename Visitor>
  void visit_later_tokens(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"mtp-num-layers",
             "layers after the last one that predict later tokens in training (DeepSeek-V3; "
             "default: 0)",
             same},
      mtp_layers);
    v(Option{"mtp-loss-scaling-factor",
             "factor of the mean of the losses of these layers (default: 0.1)", same},
      mtp_loss_factor);
  }

  template <typename Visitor>
  void visit_biases(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"add-qkv-bias", "add biases to query, key and value only, if the family has none",
             same},
      qkv_biases);
    v(Option{"add-dense-bias",
             "add a bias to the output projection of attention, if the family has none", same},
      output_bias);
    v(Option{"add-mlp-bias", "add biases to the linears of the MLP, if the family has none", same},
      mlp_biases);
    v(Option{"add-head-bias", "add a bias to the output head (GPT-J, Phi), if the family has none",
             same},
      head_bias);
  }

  template <typename Visitor>
  void visit_branches(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"post-norm", "add a norm at the end of each branch (Gemma 2)", same}, end_norms);
    v(Option{"no-pre-norm",
             "with --post-norm: leave out the norms at the beginning of branches (OLMo 2)", same},
      no_start_norm);
    v(Option{"parallel-residual",
             "compute attention and MLP of a block from the same input, and add both (GPT-NeoX)",
             same},
      parallel_residual);
    v(Option{"single-norm", "with --parallel-residual: one norm for both (Falcon)", same},
      single_norm);
  }

  template <typename Visitor>
  void visit_factors(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"embedding-multiplier", "factor of the token embeddings (Granite; default: 1)", same},
      embedding_factor);
    v(Option{"residual-multiplier",
             "factor of what each branch adds to the residual stream (Granite; default: 1)", same},
      branch_factor);
    v(Option{"logits-scaling", "number by which logits are divided (Granite; default: 1)", same},
      logit_divisor);
  }

  template <typename Visitor>
  void visit_precision(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"bf16", "use bfloat16; sums and main copies are in fp32", same}, bf16);
    v(Option{"fp16", "use fp16 with a loss scale; sums and main copies are in fp32", same}, fp16);
    v(
        Option{
            "fp32-residual-connection",
            "keep the sum of all branches in fp32, from the embedding to the last norm and between "
            "pipeline stages; with --bf16 or --fp16",
            same},
        fp32_residual);
  }

  template <typename Visitor>
  void visit_initial_weights(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"init-method-std", "standard deviation of initial weights", same}, init_deviation);
    v(Option{"embedding-init-method-std",
             "standard deviation of initial embeddings (default: --init-method-std)", same},
      embedding_deviation);
    v(Option{"init-method-xavier-uniform",
             "draw initial weights uniformly within sqrt(6 / (rows + columns)) of each matrix, "
             "instead of by --init-method-std",
             same},
      xavier_weights);
  }
};

}  // namespace piton
