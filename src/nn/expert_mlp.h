// A mixture of experts in place of the MLP of a block: the router, the experts of each token
// (kernels/experts.h), then dropout and residual. An expert is an MLP, with biases or without; then
// the logits of the router have one too. Tensor ranks split each expert as they split an MLP, and
// the first of them adds the biases of the last products; the router is whole on every rank. What
// the experts return may be added to an MLP that all tokens share, whose rows may have a gate (Qwen
// 2 MoE):
//
//   y = experts(x) + sigmoid(gate(x)) shared(x)
//
// The weight of an expert is that of what it returns. Where a token has one, it may be that of what
// the expert gets: expert(w x) in the place of w expert(x) (Llama 4).
//
// Each of e ranks of the expert axis has m = experts/e experts, and n tokens that differ. It routes
// these, and the ranks gather the tokens of all with their choices and weights. A rank computes its
// experts for all e n tokens, in r = e n min(k, m) rows, and the sums are scattered to the ranks
// that the tokens are of. Where an expert takes at most c of the n tokens, r is at most e m c. With
// Shard::row_counts the ranks gather choices alone, and tokens go to the ranks of their
// experts (ops/experts/row_exchange.h); the room is the same. The first half of the shared MLP is
// computed while tokens travel to experts, the second one while results travel back, and so are
// their gradients: of the second half while those of results travel, of the first one while those
// of tokens do.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nn/expert_adapters.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "ops/activation.h"
#include "ops/experts/expert_rows.h"
#include "ops/experts/routing.h"
#include "ops/experts/row_exchange.h"
#include "ops/under_way.h"

namespace piton {

// The canonical tensors of routers and gates. They are never quantized: their products choose.
inline bool is_router_tensor(std::string_view name) {
  return name.ends_with(".mlp.router.weight") || name.ends_with(".mlp.router.bias") ||
         name.ends_with(".mlp.router.logit_bias") || name.ends_with(".mlp.shared_gate.weight");
}

// Biases of choices, which are added to scores between 0 and 1: in fp32, whatever the model is in.
inline bool is_choice_bias(std::string_view name) { return name.ends_with(".mlp.router.bias"); }

struct SharedExpertShape {
  std::int64_t ffn_hidden = 0;
  bool gate = false;
};

struct ExpertMlpShape {
  std::int64_t hidden = 0;      // h
  std::int64_t ffn_hidden = 0;  // f, of each expert
  std::int64_t experts = 0;
  RoutingRules rules;          // factors of the balance and of the z-loss: of the whole loss
  bool weighs_inputs = false;  // the weight of a token's one expert is of its input, not its output
  // The scores have a bias for the choice, which each update moves by this (Wang et al. 2024,
  // arXiv:2408.15664); empty: no bias.
  std::optional<double> bias_rate;
  bool gated = false;
  bool biases = false;  // of the experts, of the shared MLP and of the router's logits
  ActivationKind activation = ActivationKind::kGeluTanh;
  GateRule gate_rule;  // of a gated one
  std::optional<SharedExpertShape> shared;
  std::optional<NormShape> end_norm;  // of the sum over the experts
  double output_factor = 1;           // of it, after its norm
  double hidden_dropout = 0;          // probability
  // Of the experts (nn/expert_adapters.h) and of the MLP next to them; read by the constructor;
  // null: none.
  const Adapters* adapters = nullptr;
};

class ExpertMlp {
 public:
  // Canonical tensors: NAME.router.weight, NAME.router.bias [experts], NAME.experts.E.gate.weight,
  // .up.weight, .down.weight, NAME.shared_gate.weight [1, h], NAME.shared.gate.weight, .up.weight,
  // .down.weight; with biases also NAME.router.logit_bias [experts] and .bias next to .weight of
  // experts and the shared MLP.
  ExpertMlp(ParameterList& parameters, const Shard& shard, const std::string& name,
            const ExpertMlpShape& shape, const BranchInitialization& initialization);
  // residual + dropout(experts(x)). x, residual and the result: [b*s, h], under sequence
  // parallelism this rank's [b*s/t, h].
  Value forward(Context& context, const Value& x, const Value* residual) const;

 private:
  // The most rows of one expert, of the tokens of each rank of the expert axis.
  std::int64_t most_rows(const Context& context, std::int64_t tokens) const;
  // How the tokens of all ranks with these choices, [e n, k], get to their experts.
  RowExchange exchange_of(Context& context, const Tensor& choices) const;
  // Tokens on their way to the ranks of their experts.
  struct SentTokens {
    std::int64_t count = 0;               // n
    std::optional<RowExchange> exchange;  // none: they are gathered
    UnderWay choices;                     // [e n, k] of gathered tokens
    UnderWay tokens;                      // weighted, if inputs are
    UnderWay weights;                     // of outputs
  };
  SentTokens sent_tokens(Context& context, const Value& tokens) const;
  // Their results on the way back: [n, h], the sum over the experts that this tensor rank has a
  // part of.
  UnderWay experts_of(Context& context, SentTokens sent) const;
  // What is computed of the MLP that all tokens share; empty without one.
  struct SharedPart {
    Value gate;    // [b*s, 1]; empty: none
    Value active;  // between its halves
    Value result;  // [b*s, h]; empty: the second half is computed with the sum of the experts
  };
  SharedPart start_shared(Context& context, const Value& x) const;
  Value with_shared(Context& context, const Value& experts, const SharedPart& shared) const;

  Shard shard_;
  ExpertRange here_;
  ExpertMlpShape shape_;
  double adapter_dropout_;  // probability
  std::string site_, random_site_;
  Parameter* router_;                 // [experts, h]
  Parameter* router_bias_ = nullptr;  // [experts]
  Parameter* up_;                     // [m 2 f/t, h] gate and up of each expert, or [m f/t, h]
  Parameter* down_;                   // [m h, f/t]
  std::vector<ExpertAdapter> up_adapters_, down_adapters_;
  Parameter* logit_bias_ = nullptr;   // [experts]
  Parameter* up_bias_ = nullptr;      // [m 2 f/t] or [m f/t]
  Parameter* down_bias_ = nullptr;    // [m h]
  Parameter* shared_gate_ = nullptr;  // [1, h]
  std::optional<Mlp> shared_;
  std::optional<Norm> end_norm_;
};

}  // namespace piton
