#include "megatron/format/expert_arguments.h"

#include <algorithm>
#include <optional>
#include <string>

namespace piton {
namespace {

using Kind = PickleValue::Kind;

constexpr const char* kDenseLayers = "first_k_dense_replace";  // of MindSpeed-LLM

// The layers without experts.
std::vector<std::int64_t> dense_layers(const ArgumentValues& arguments,
                                       const std::vector<std::int64_t>& empty_layers,
                                       std::int64_t layers) {
  const char* name = "moe_layer_freq";
  const PickleValue* value = arguments.find(name);
  const PickleValue* first = arguments.find(kDenseLayers);
  const bool counted = first != nullptr && first->kind == Kind::kInt && first->integer > 0;
  const bool patterned = value != nullptr && value->kind != Kind::kInt;
  std::vector<std::int64_t> dense;
  if (!patterned) {
    // MindSpeed-LLM has -1 where neither is given.
    const std::int64_t every = value == nullptr || value->integer == -1 ? 1 : arguments.must(name);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if ((counted && layer < first->integer) || layer % every != 0) dense.push_back(layer);
    }
    return dense;
  }
  std::vector<std::int64_t> pattern = arguments.numbers(name);
  const std::int64_t places = layers + std::ssize(empty_layers);
  if (!empty_layers.empty() && std::ssize(pattern) == places) {
    for (auto place = empty_layers.rbegin(); place != empty_layers.rend(); ++place) {
      if (*place >= 0 && *place < std::ssize(pattern)) pattern.erase(pattern.begin() + *place);
    }
  }
  if (std::ssize(pattern) != layers)
    arguments.wrong(name, fmt::format("a number, or a list of {} ones and zeros", layers));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::int64_t one = pattern[static_cast<std::size_t>(layer)];
    if (one != 0 && one != 1) arguments.wrong(name, "ones and zeros");
    if (one == 0) dense.push_back(layer);
  }
  return dense;
}

// What types of MindSpeed-LLM's router change, in addition to what is balanced
// (docs/coming_from_megatron.md).
void set_type(const ArgumentValues& arguments, const std::string& type, ExpertFacts& facts) {
  const bool normalizes = arguments.flag("norm_topk_prob", false) && facts.choices > 1;
  const bool plain = type == "softmax_topk" || type == "pai_megatron_aux_loss";
  const bool greedy = type == "group_limited_greedy";
  if ((plain || greedy) && facts.score != ScoreKind::kSoftmax)
    arguments.wrong("moe_router_score_function",
                    "softmax with this moe_router_load_balancing_type");
  if (plain) {
    facts.normalized = false;
    facts.weight_factor = 1;
    facts.groups = {};
  } else if (greedy) {
    facts.normalized = normalizes;
    if (normalizes) facts.weight_factor = 1;
    facts.groups.largest = 1;
  } else if (facts.score == ScoreKind::kSoftmax && normalizes) {
    facts.normalized = true;
  }
  const bool samples = type == "none" || type == "noaux_tc" || greedy;
  if (type == "seq_aux_loss" || (samples && arguments.flag("seq_aux", false))) {
    facts.balances_samples = true;
  } else if (type == "none" || type == "noaux_tc" || type == "softmax_topk") {
    facts.balance_factor = 0;
  }
}

void set_router(const ArgumentValues& arguments, ExpertFacts& facts) {
  const char* score = "moe_router_score_function";
  const std::string said = arguments.word(score, "softmax");
  if (said != "softmax" && said != "sigmoid") arguments.wrong(score, "softmax or sigmoid");
  if (said == "sigmoid") {
    facts.score = ScoreKind::kSigmoid;
    facts.normalized = facts.choices > 1;  // whatever moe_router_pre_softmax is
  }
  facts.weight_factor = arguments.number(
      arguments.either("moe_router_topk_scaling_factor", "routed_scaling_factor"), 1);
  facts.choice_bias = arguments.flag("moe_router_enable_expert_bias", false);
  if (facts.choice_bias) {
    // As Megatron-core checks it.
    if (facts.score != ScoreKind::kSigmoid)
      arguments.wrong("moe_router_enable_expert_bias", "False where softmax gives the scores");
    facts.bias_rate = arguments.number("moe_router_bias_update_rate", 1e-3);
  }
  std::optional<std::int64_t> groups =
      arguments.size(arguments.either("moe_router_num_groups", "n_group"));
  const char* older = "topk_group";
  const std::optional<std::int64_t> chosen =
      arguments.size(arguments.either("moe_router_group_topk", older));
  if (!chosen) return;  // Megatron-core groups by it alone
  // MindSpeed-LLM's groups are those of expert ranks.
  if (!groups && arguments.find(older) != nullptr)
    groups = arguments.size("expert_model_parallel_size");
  facts.groups = {.count = groups.value_or(1),
                  .chosen = *chosen,
                  .largest = std::max<std::int64_t>(1, facts.choices / *chosen)};
  if (facts.groups.count == 1 && facts.groups.chosen == 1) facts.groups = {};
}

}  // namespace

void set_experts(const ArgumentValues& arguments, const std::vector<std::int64_t>& empty_layers,
                 const StateSpaceOptions& letters, ModelConfig& model) {
  const char* name = "num_experts";
  const bool in_letters = letters.pattern && letters.pattern->find('E') != std::string::npos;
  // Megatron-DeepSpeed's default is [1].
  const PickleValue* each = arguments.find(name);
  if (each == nullptr || (each->kind == Kind::kList && each->items.size() == 1 &&
                          each->items[0]->kind == Kind::kInt && each->items[0]->integer == 1)) {
    if (in_letters)
      arguments.wrong(name, "the experts of a layer, as the pattern has layers with experts (E)");
    return;
  }
  // Of letters Megatron-core makes experts for E alone, whatever num_experts is.
  if (model.state_space && !in_letters) return;
  ExpertFacts facts{.experts = arguments.must(name)};
  facts.choices = arguments.size("moe_router_topk").value_or(2);
  facts.normalized = !arguments.flag("moe_router_pre_softmax", false);
  facts.balance_factor = arguments.number("moe_aux_loss_coeff", 0);
  facts.z_factor = arguments.number("moe_z_loss_coeff", 0);
  facts.capacity_factor = std::max(0.0, arguments.number("moe_expert_capacity_factor", 0));
  facts.keeps_first =
      facts.capacity_factor != 0 && arguments.word("moe_token_drop_policy", "probs") == "position";
  facts.weighs_inputs = arguments.flag("moe_apply_probs_on_input", false);
  const std::int64_t width =
      arguments.size(arguments.either("moe_ffn_hidden_size", "moe_intermediate_size"))
          .value_or(model.ffn_hidden);
  facts.shared_ffn_hidden = arguments.size("moe_shared_expert_intermediate_size")
                                .value_or(width * arguments.size("n_shared_experts").value_or(0));
  facts.shared_gate =
      arguments.flag(arguments.either("moe_shared_expert_gate", "shared_expert_gate"), false);
  set_router(arguments, facts);
  set_type(arguments, arguments.word("moe_router_load_balancing_type", "aux_loss"), facts);
  if (in_letters) {
    model.experts = facts;
    letters.set_experts(model);
    facts.dense_layers = model.experts->dense_layers;
  } else {
    facts.dense_layers = dense_layers(arguments, empty_layers, model.layers);
  }
  if (facts.dense_layers.empty()) model.ffn_hidden = width;
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  model.experts = facts;
}

}  // namespace piton
