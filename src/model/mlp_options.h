// The activation of a decoder's MLP, with Megatron's flags.
//
//   --activation   y                          inner width
//   gelu           gelu(x), tanh form         f
//   gelu-erf       gelu(x), exact             f              Megatron: --no-bias-gelu-fusion, which
//                                                            changes no other activation
//   gelu-fast      x sigmoid(1.702 x)         f
//   relu           max(x, 0)                  f
//   squared-relu   max(x, 0)^2                f              Megatron: --squared-relu
//   swiglu         silu(gate) up              f each         Megatron: --swiglu
//   geglu          gelu(gate) up, tanh form   f each         MindSpeed: --gelu-tanh
//   geglu-erf      gelu(gate) up, exact       f each         MindSpeed: --geglu
//   quick-geglu    gelu-fast(gate) up         f each         Megatron: --quick-geglu
//
// --activation-func-clamp-value c bounds the inputs of a gated one, min(gate, c) and -c <= up <= c,
// and --glu-linear-offset o adds to up after that (kernels/activation.h, GateRule).
//
// f is --ffn-hidden-size. --is-x-model is GeGLU with a first matrix of f rows, as in a plain MLP:
// half of them are the gate, so the inner width is f / 2. --activation chooses its gelu.
//
// With --num-experts the MLP of each layer is a mixture of experts, each of width
// --moe-ffn-hidden-size, by default f. --moe-layer-freq leaves layers with an MLP of width f, and
// --moe-shared-expert-intermediate-size adds an MLP to the experts that all tokens share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "kernels/experts.h"

namespace piton {

struct ModelConfig;

// A mixture of experts in place of the MLP of layers (kernels/experts.h).
struct ExpertFacts {
  std::int64_t experts = 0;
  std::int64_t choices = 2;  // experts of a token
  bool normalized = true;    // the weights of a token add up to 1
  ScoreKind score = ScoreKind::kSoftmax;
  double weight_factor = 1;                // of the weights
  bool choice_bias = false;                // added to scores for the choice alone
  double bias_rate = 0;                    // by which an update moves that bias
  ExpertGroups groups;                     // of which a token chooses
  double balance_factor = 0;               // of the balance of each layer in the loss
  bool balances_samples = false;           // it is of each sample, not of the micro-batch
  double z_factor = 0;                     // of the z-loss of each layer in the loss
  double capacity_factor = 0;              // the tokens an expert takes over the mean; 0: all
  bool keeps_first = false;                // it keeps the first ones, not the best
  bool weighs_inputs = false;              // the weight is of the input of a token's one expert
  bool random_router = false;              // in training, for benchmarks
  std::int64_t ffn_hidden = 0;             // of each expert; 0: that of the model
  std::int64_t shared_ffn_hidden = 0;      // of an MLP that all tokens share; 0: there is none
  bool shared_gate = false;                // its rows are multiplied with the sigmoid of a gate
  std::vector<std::int64_t> dense_layers;  // ascending; they have an MLP of the model's width

  bool in_layer(std::int64_t layer) const;
  bool operator==(const ExpertFacts&) const = default;
};

// Throws Error(kUsage) that names the flag of the first invalid field of the experts.
void check_experts(const ModelConfig& config);

// For the log of a run in which the router is random; "": it is not.
std::string warning_of_random_router(const ModelConfig& config);

// How the router chooses experts and weighs them (kernels/experts.h, RouteTokens).
struct RouterOptions {
  std::optional<std::string> score;
  bool unnormalized = false;
  std::optional<double> weight_factor;
  bool choice_bias = false;
  std::optional<double> bias_rate;
  std::optional<std::int64_t> groups, group_choices, group_scores;
  bool weighs_inputs = false;
  bool random = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"moe-router-score-function",
             "scores of the experts: the softmax of all logits (default), or the sigmoid of each",
             {.resume = Resume::kMustMatch, .choices = {"softmax", "sigmoid"}}},
      score);
    v(Option{"no-norm-topk-prob",
             "weights of the chosen experts are their scores; without it they add up to 1, before "
             "the factor",
             same},
      unnormalized);
    v(Option{"moe-router-topk-scaling-factor", "factor of the weights of experts (default: 1)",
             same},
      weight_factor);
    v(Option{"moe-router-enable-expert-bias",
             "add a bias of each expert to its score for the choice, which balances the experts",
             same},
      choice_bias);
    v(Option{"moe-router-bias-update-rate",
             "by which each update raises that bias of experts with fewer tokens than the mean, "
             "and lowers that of the others (default: 1e-3; 0: it stays)",
             same},
      bias_rate);
    v(Option{"moe-router-num-groups",
             "groups of equal size that the experts are divided into (default: 1)", same},
      groups);
    v(Option{"moe-router-group-topk", "groups that a token can choose experts of", same},
      group_choices);
    v(Option{"moe-router-group-scores",
             "scores whose sum is that of a group, the largest ones in it (default: "
             "--moe-router-topk / --moe-router-group-topk)",
             same},
      group_scores);
    v(Option{"moe-apply-probs-on-input",
             "multiply what an expert gets with the weight, in place of what it returns "
             "(--moe-router-topk 1)",
             same},
      weighs_inputs);
    v(Option{"moe-router-force-load-balancing",
             "for benchmarks: random logits in the place of those of the router, so that all "
             "experts have about as many tokens; what the model learns is of no use",
             same},
      random);
  }

  // The first flag that is given; null: none is.
  const char* given() const;
  // `facts` have the choices of a token.
  void apply(ExpertFacts& facts) const;
  static RouterOptions of(const ExpertFacts& facts);
};

// The most tokens that an expert takes in training and in its evaluation (ops/experts/routing.h).
struct CapacityOptions {
  std::optional<double> factor;
  std::optional<std::string> policy;
  bool pads = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"moe-expert-capacity-factor",
             "drop what an expert gets beyond this times the mean number of tokens of an expert in "
             "a micro-batch (default, and if negative: nothing is dropped)",
             {.resume = Resume::kMustMatch}},
      factor);
    v(Option{"moe-token-drop-policy",
             "what an expert keeps with --moe-expert-capacity-factor: the tokens with the largest "
             "weights (probs, default), or the first ones of the samples (position)",
             {.resume = Resume::kMustMatch, .choices = {"probs", "position"}}},
      policy);
    v(Option{"moe-pad-expert-input-to-capacity",
             "Megatron-core's rows without tokens up to the capacity, which change no result: "
             "taken with --moe-expert-capacity-factor, and without effect"},
      pads);
  }

  // Throws Error(kUsage) for what needs a capacity without one.
  void apply(ExpertFacts& facts) const;
  static CapacityOptions of(const ExpertFacts& facts);
};

struct MlpOptions {
  std::optional<std::string> activation;
  bool swiglu = false;
  bool exact_gelu = false;
  bool squared_relu = false;
  bool quick_geglu = false;
  bool exact_geglu = false;
  bool tanh_geglu = false;
  bool is_x_model = false;
  std::optional<double> gate_bound, gate_offset;
  std::optional<std::int64_t> experts, choices, expert_ffn_hidden, shared_ffn_hidden,
      shared_experts, dense_first;
  bool shared_gate = false;
  std::optional<std::string> expert_layers;
  bool weights_before_choice = false;
  std::optional<double> balance_factor, z_factor;
  std::optional<std::string> balancing;
  RouterOptions router;
  CapacityOptions capacity;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"activation",
             "activation of the MLP (default: that of the family)",
             {.resume = Resume::kMustMatch,
              .choices = {"gelu", "gelu-erf", "gelu-fast", "relu", "squared-relu", "swiglu",
                          "geglu", "geglu-erf", "quick-geglu"}}},
      activation);
    v(Option{"swiglu", "same as --activation swiglu", same}, swiglu);
    v(Option{"no-bias-gelu-fusion",
             "use the exact GELU, like Megatron with this flag; same as --activation gelu-erf, and "
             "without effect on other activations",
             same},
      exact_gelu);
    v(Option{"squared-relu", "same as --activation squared-relu (Nemotron)", same}, squared_relu);
    v(Option{"quick-geglu", "same as --activation quick-geglu (gpt-oss)", same}, quick_geglu);
    v(Option{"geglu", "same as --activation geglu-erf (MindSpeed)", same}, exact_geglu);
    v(Option{"gelu-tanh", "same as --activation geglu (MindSpeed)", same}, tanh_geglu);
    v(
        Option{
            "activation-func-clamp-value",
            "bound c of a gated activation: gates are at most c, the other inputs between -c and c "
            "(gpt-oss; default: that of the family, else none; 0: none)",
            same},
        gate_bound);
    v(Option{"glu-linear-offset",
             "number that is added to what gates multiply (gpt-oss: 1; default: that of the "
             "family, else 0)",
             same},
      gate_offset);
    v(Option{"is-x-model", "use GeGLU with half of --ffn-hidden-size as its inner width", same},
      is_x_model);
    visit_experts(v);
  }

  // Sets the activation, whether it is gated, and the experts; does not change f. Throws
  // Error(kUsage) if flags contradict each other.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static MlpOptions of(const ModelConfig& config);
  // The activation alone.
  MlpOptions without_experts() const;

 private:
  template <typename Visitor>
  void visit_experts(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"num-experts", "experts of each layer in place of its MLP (default: no experts)",
             same},
      experts);
    v(Option{"moe-router-topk", "experts that compute a token (default: 2)", same}, choices);
    v(Option{"moe-ffn-hidden-size",
             "width inside each expert (default: --ffn-hidden-size)",
             {.aliases = {"moe-intermediate-size"}, .resume = Resume::kMustMatch}},
      expert_ffn_hidden);
    v(Option{"moe-layer-freq",
             "layers with experts: N for layers 0, N, 2 N, ..., or a 1 or 0 for each, as in "
             "'[0]*3+[1]*24' (default, and -1: all, or those of --model)",
             {.resume = Resume::kMustMatch, .placeholder = "LAYERS"}},
      expert_layers);
    v(Option{"first-k-dense-replace",
             "leave the first K layers without experts, as '[0]*K+[1]*N' (MindSpeed-LLM; -1: not "
             "given)",
             same},
      dense_first);
    v(Option{"moe-shared-expert-intermediate-size",
             "width of an MLP in addition to the experts, which all tokens share (default: none)",
             same},
      shared_ffn_hidden);
    v(Option{"n-shared-experts",
             "the width of that MLP as a multiple of --moe-ffn-hidden-size (MindSpeed-LLM)", same},
      shared_experts);
    v(Option{"moe-shared-expert-gate",
             "multiply what that MLP returns with the sigmoid of a linear of each row (Qwen 2 MoE)",
             {.aliases = {"shared-expert-gate"}, .resume = Resume::kMustMatch}},
      shared_gate);
    v(Option{"moe-router-pre-softmax",
             "weights of the chosen experts are those among all experts; without it they add up "
             "to 1",
             same},
      weights_before_choice);
    v(Option{"moe-aux-loss-coeff",
             "factor of the balance of each layer in the loss: 1 where all experts have as many "
             "tokens (default: 0)",
             same},
      balance_factor);
    v(Option{"moe-router-load-balancing-type",
             "what --moe-aux-loss-coeff balances: the experts of all rows of a micro-batch "
             "(aux_loss, default), of each sample (seq_aux_loss), or none; MindSpeed-LLM's types "
             "say how a token's experts are chosen too (docs/coming_from_megatron.md)",
             {.resume = Resume::kMustMatch,
              .choices = {"aux_loss", "seq_aux_loss", "none", "noaux_tc", "softmax_topk",
                          "group_limited_greedy", "pai_megatron_aux_loss"}}},
      balancing);
    v(Option{"moe-z-loss-coeff",
             "factor of the z-loss of each layer in the loss: the square of the log-sum-exp of a "
             "row's logits of experts (default: 0)",
             same},
      z_factor);
    router.visit(v);
    capacity.visit(v);
  }
  void apply_experts(ModelConfig& config) const;
};

}  // namespace piton
