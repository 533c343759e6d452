#include "model/mlp_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/options/option_range.h"
#include "model/config.h"
#include "model/families.h"

namespace piton {
namespace {

constexpr std::int64_t kNotGiven = -1;  // MindSpeed's default of numbers of layers

bool is_plain_gelu(const ModelConfig& config) {
  return !config.gated && (config.activation == ActivationKind::kGeluTanh ||
                           config.activation == ActivationKind::kGeluErf);
}

// The activation that the flags name; "" if none does. `family`: that of the family. Throws
// Error(kUsage) if they disagree.
std::string named(const MlpOptions& options, const ModelConfig& family) {
  std::string name = options.activation.value_or("");
  const auto agree = [&](bool given, const char* flag, const char* means) {
    if (!given) return;
    if (!name.empty() && name != means) {
      throw Error(Fault::kUsage, "--{}: means {}, but another flag says {}; give one of them", flag,
                  means, name);
    }
    name = means;
  };
  agree(options.swiglu, "swiglu", "swiglu");
  agree(options.squared_relu, "squared-relu", "squared-relu");
  agree(options.quick_geglu, "quick-geglu", "quick-geglu");
  agree(options.exact_geglu, "geglu", "geglu-erf");
  agree(options.tanh_geglu, "gelu-tanh", "geglu");
  // Megatron's fused kernel is of a GELU without a gate; other activations have no such kernel.
  const bool is_gelu = name.empty() ? options.is_x_model || is_plain_gelu(family)
                                    : name == "gelu" || name == "gelu-erf";
  agree(options.exact_gelu && is_gelu, "no-bias-gelu-fusion", "gelu-erf");
  return name;
}

// Whether each layer has experts, as --moe-layer-freq gives it to Megatron-LM: sums and multiples
// of lists of ones and zeros.
class LayerPattern {
 public:
  explicit LayerPattern(const std::string& text) : text_(text), left_(text) {}

  std::vector<bool> parse() {
    std::vector<bool> all = sum();
    if (!left_.empty()) refuse();
    return all;
  }

 private:
  static constexpr std::size_t kLongest = 1 << 16;

  [[noreturn]] void refuse() const {
    throw Error(Fault::kUsage,
                "--moe-layer-freq: got {}, wanted a number, or sums and multiples of lists of ones "
                "and zeros, one for each layer, as in '[0]*3+[1]*24'",
                text_);
  }
  bool take(char wanted) {
    while (left_.starts_with(' ')) left_.remove_prefix(1);
    if (!left_.starts_with(wanted)) return false;
    left_.remove_prefix(1);
    while (left_.starts_with(' ')) left_.remove_prefix(1);
    return true;
  }
  std::vector<bool> sum() {
    std::vector<bool> all = multiple();
    while (take('+')) {
      const std::vector<bool> more = multiple();
      all.insert(all.end(), more.begin(), more.end());
      if (all.size() > kLongest) refuse();
    }
    return all;
  }
  std::vector<bool> multiple() {
    const std::vector<bool> once = list();
    if (!take('*')) return once;
    std::size_t times = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), times);
    if (error != std::errc() || times > kLongest || times * once.size() > kLongest) refuse();
    left_.remove_prefix(static_cast<std::size_t>(end - left_.data()));
    std::vector<bool> all;
    for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
    return all;
  }
  std::vector<bool> list() {
    std::vector<bool> all;
    if (take('(')) {
      if (++depth_ > 8) refuse();
      all = sum();
      if (!take(')')) refuse();
      --depth_;
      return all;
    }
    if (!take('[')) refuse();
    do {
      const bool one = take('1');
      if (!one && !take('0')) refuse();
      all.push_back(one);
    } while (take(','));
    if (!take(']')) refuse();
    return all;
  }

  const std::string& text_;
  std::string_view left_;
  int depth_ = 0;
};

// The layers without experts, of `text` as --moe-layer-freq takes it.
std::vector<std::int64_t> dense_layers(const std::string& text, std::int64_t layers) {
  std::int64_t every = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), every);
  std::vector<bool> pattern;
  if (error == std::errc() && end == text.data() + text.size()) {
    check_range("--moe-layer-freq", every, 1, 1 << 16);
    for (std::int64_t layer = 0; layer < layers; ++layer) pattern.push_back(layer % every == 0);
  } else {
    pattern = LayerPattern(text).parse();
  }
  if (std::ssize(pattern) != layers) {
    throw Error(Fault::kUsage,
                "--moe-layer-freq: got {}, which has {} layers, and the model has {}", text,
                pattern.size(), layers);
  }
  std::vector<std::int64_t> dense;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (!pattern[static_cast<std::size_t>(layer)]) dense.push_back(layer);
  return dense;
}

// The text that gives these layers, in runs of equal ones.
std::string layer_pattern(const ExpertFacts& facts, std::int64_t layers) {
  std::string text;
  for (std::int64_t layer = 0; layer < layers;) {
    const bool experts = facts.in_layer(layer);
    std::int64_t end = layer + 1;
    while (end < layers && facts.in_layer(end) == experts) ++end;
    text += fmt::format("{}[{}]*{}", layer == 0 ? "" : "+", experts ? 1 : 0, end - layer);
    layer = end;
  }
  return text;
}

constexpr double kBiasRate = 1e-3;  // Megatron-core's

void check_router(const ExpertFacts& facts) {
  const ExpertGroups& groups = facts.groups;
  check_range("--moe-router-num-groups", groups.count, 1, ExpertGroups::kMost);
  if (facts.experts % groups.count != 0) {
    throw Error(Fault::kUsage,
                "--moe-router-num-groups: got {}, wanted a divisor of --num-experts, which is {}",
                groups.count, facts.experts);
  }
  const std::int64_t size = facts.experts / groups.count;
  check_range("--moe-router-group-topk", groups.chosen, 1, groups.count);
  if (facts.choices > groups.chosen * size) {
    throw Error(
        Fault::kUsage,
        "--moe-router-topk: got {}, and the {} of {} groups that a token can choose of have "
        "{} experts; raise --moe-router-group-topk",
        facts.choices, groups.chosen, groups.count, groups.chosen * size);
  }
  check_range("--moe-router-group-scores", groups.largest, 1, size);
  check_positive("--moe-router-topk-scaling-factor", facts.weight_factor);
  if (facts.weighs_inputs && facts.choices != 1) {
    throw Error(Fault::kUsage,
                "--moe-apply-probs-on-input: needs --moe-router-topk 1, got {}: the input of each "
                "expert of a token would be another one",
                facts.choices);
  }
  check_not_negative("--moe-router-bias-update-rate", facts.bias_rate);
  const bool sigmoid = facts.score == ScoreKind::kSigmoid;
  if (facts.bias_rate != 0 && !facts.choice_bias) {
    throw Error(Fault::kUsage,
                "--moe-router-bias-update-rate: got {}, and there is no bias; give "
                "--moe-router-enable-expert-bias too, or leave it out",
                facts.bias_rate);
  }
  if (sigmoid && facts.normalized && facts.choices == 1) {
    throw Error(Fault::kUsage,
                "--moe-router-topk: got 1, so that each weight over the sum of one is 1, which "
                "teaches the router nothing; give --no-norm-topk-prob too");
  }
}

}  // namespace

void check_experts(const ModelConfig& c) {
  if (!c.experts) return;
  const ExpertFacts& facts = *c.experts;
  check_range("--num-experts", facts.experts, 1, 1 << 16);
  check_range("--moe-router-topk", facts.choices, 1, facts.experts);
  check_not_negative("--moe-aux-loss-coeff", facts.balance_factor);
  check_not_negative("--moe-z-loss-coeff", facts.z_factor);
  check_not_negative("--moe-expert-capacity-factor", facts.capacity_factor);
  check_router(facts);
  check_range("--moe-ffn-hidden-size", c.expert_ffn_hidden(), 1, kLargestSize);
  check_range("--moe-shared-expert-intermediate-size", facts.shared_ffn_hidden, 0, kLargestSize);
  if (facts.shared_gate && facts.shared_ffn_hidden == 0) {
    throw Error(Fault::kUsage,
                "--moe-shared-expert-gate: is of an MLP that all tokens share, and there is none; "
                "give --moe-shared-expert-intermediate-size too");
  }
  if (c.expert_layers() <= 0) {
    throw Error(Fault::kUsage, "--moe-layer-freq: no layer has experts; leave --num-experts out");
  }
  if (!facts.dense_layers.empty() && facts.dense_layers.back() >= c.layers) {
    throw Error(Fault::kUsage,
                "--moe-layer-freq: layer {} has no experts, and the model has {} layers; give it "
                "too",
                facts.dense_layers.back(), c.layers);
  }
  if (c.encoder || c.encoder_decoder) {
    throw Error(Fault::kUsage,
                "--num-experts: is for decoders, and the model is an encoder (bert, t5); leave it "
                "out");
  }
}

std::string warning_of_random_router(const ModelConfig& config) {
  if (!config.experts || !config.experts->random_router) return "";
  return "--moe-router-force-load-balancing: tokens go to random experts, for benchmarks; what "
         "this "
         "run learns is of no use";
}

bool ExpertFacts::in_layer(std::int64_t layer) const {
  return !std::ranges::binary_search(dense_layers, layer);
}

const char* RouterOptions::given() const {
  if (score) return "--moe-router-score-function";
  if (unnormalized) return "--no-norm-topk-prob";
  if (weight_factor) return "--moe-router-topk-scaling-factor";
  if (choice_bias) return "--moe-router-enable-expert-bias";
  if (bias_rate) return "--moe-router-bias-update-rate";
  if (groups) return "--moe-router-num-groups";
  if (group_choices) return "--moe-router-group-topk";
  if (weighs_inputs) return "--moe-apply-probs-on-input";
  if (random) return "--moe-router-force-load-balancing";
  return group_scores ? "--moe-router-group-scores" : nullptr;
}

void RouterOptions::apply(ExpertFacts& facts) const {
  if (score) facts.score = *score == "sigmoid" ? ScoreKind::kSigmoid : ScoreKind::kSoftmax;
  // Megatron-core does not divide a single sigmoid by itself.
  const bool lone = facts.score == ScoreKind::kSigmoid && facts.choices == 1;
  if (unnormalized || (score && lone)) facts.normalized = false;
  if (weight_factor) facts.weight_factor = *weight_factor;
  if (weighs_inputs) facts.weighs_inputs = true;
  if (random) facts.random_router = true;
  if (choice_bias && !facts.choice_bias) {
    facts.choice_bias = true;
    facts.bias_rate = kBiasRate;
  }
  if (bias_rate) facts.bias_rate = *bias_rate;
  if (groups.has_value() != group_choices.has_value() && !facts.groups.divide()) {
    throw Error(Fault::kUsage, "--moe-router-{}: got no --moe-router-{}; give both or neither",
                groups ? "num-groups" : "group-topk", groups ? "group-topk" : "num-groups");
  }
  if (groups) facts.groups.count = *groups;
  if (group_choices) facts.groups.chosen = *group_choices;
  if (groups || group_choices)
    facts.groups.largest =
        std::max<std::int64_t>(1, facts.choices / std::max<std::int64_t>(1, facts.groups.chosen));
  if (group_scores) facts.groups.largest = *group_scores;
  if (facts.groups.count == 1 && facts.groups.chosen == 1 && !group_scores) facts.groups = {};
}

RouterOptions RouterOptions::of(const ExpertFacts& facts) {
  RouterOptions options;
  const bool sigmoid = facts.score == ScoreKind::kSigmoid;
  if (sigmoid) options.score = "sigmoid";
  options.unnormalized = sigmoid && !facts.normalized;
  if (facts.weight_factor != 1) options.weight_factor = facts.weight_factor;
  options.weighs_inputs = facts.weighs_inputs;
  options.random = facts.random_router;
  options.choice_bias = facts.choice_bias;
  if (facts.choice_bias) options.bias_rate = facts.bias_rate;
  if (facts.groups == ExpertGroups{}) return options;
  options.groups = facts.groups.count;
  options.group_choices = facts.groups.chosen;
  options.group_scores = facts.groups.largest;
  return options;
}

void CapacityOptions::apply(ExpertFacts& facts) const {
  if (factor && !(*factor < 0 || *factor > 0)) {
    throw Error(Fault::kUsage,
                "--moe-expert-capacity-factor: got {}, wanted a positive number; leave it out if "
                "experts take all tokens",
                *factor);
  }
  if (factor) facts.capacity_factor = std::max(*factor, 0.0);
  if (pads && facts.capacity_factor == 0) {
    throw Error(Fault::kUsage,
                "--moe-pad-expert-input-to-capacity: there is no capacity; give "
                "--moe-expert-capacity-factor too, or leave it out");
  }
  // Scripts give Megatron's default without a capacity.
  if (policy) facts.keeps_first = *policy == "position" && facts.capacity_factor != 0;
}

CapacityOptions CapacityOptions::of(const ExpertFacts& facts) {
  CapacityOptions options;
  if (facts.capacity_factor != 0) options.factor = facts.capacity_factor;
  if (facts.keeps_first) options.policy = "position";
  return options;
}

void MlpOptions::apply(ModelConfig& config) const {
  const std::string name = named(*this, config);
  const bool gates =
      name == "swiglu" || name == "geglu" || name == "geglu-erf" || name == "quick-geglu";
  if (is_x_model && gates) {
    throw Error(Fault::kUsage,
                "--is-x-model: is already a gated GELU, but the given activation is {}; wanted "
                "gelu, gelu-erf, gelu-fast, relu, squared-relu or none",
                name);
  }
  if (name == "gelu-erf" || name == "geglu-erf") {
    config.activation = ActivationKind::kGeluErf;
  } else if (name == "gelu-fast" || name == "quick-geglu") {
    config.activation = ActivationKind::kGeluFast;
  } else if (name == "relu") {
    config.activation = ActivationKind::kRelu;
  } else if (name == "squared-relu") {
    config.activation = ActivationKind::kSquaredRelu;
  } else if (name == "swiglu") {
    config.activation = ActivationKind::kSilu;
  } else if (!name.empty() || is_x_model) {
    config.activation = ActivationKind::kGeluTanh;
  }
  if (!name.empty()) config.gated = gates;
  if (is_x_model) config.gated = true;
  if (!name.empty() && !config.gated) config.gate_rule = {};
  if (gate_bound) config.gate_rule.bound = *gate_bound;
  if (gate_offset) config.gate_rule.offset = *gate_offset;
  apply_experts(config);
}

void MlpOptions::apply_experts(ModelConfig& config) const {
  if (experts) check_range("--num-experts", *experts, 1, 1 << 16);
  if (experts && !config.experts) config.experts.emplace();
  const auto needs_experts = [&](bool given, const char* flag) {
    if (!given || config.experts) return;
    throw Error(Fault::kUsage,
                "{}: is for a mixture of experts, and there are none; give --num-experts too, or "
                "leave it out",
                flag);
  };
  needs_experts(choices.has_value(), "--moe-router-topk");
  needs_experts(expert_ffn_hidden.has_value(), "--moe-ffn-hidden-size");
  const bool names_layers = expert_layers && *expert_layers != std::to_string(kNotGiven);
  const std::int64_t first = dense_first.value_or(kNotGiven);
  needs_experts(names_layers, "--moe-layer-freq");
  needs_experts(shared_ffn_hidden.value_or(0) != 0, "--moe-shared-expert-intermediate-size");
  needs_experts(shared_experts.value_or(0) != 0, "--n-shared-experts");
  needs_experts(first != kNotGiven && first != 0, "--first-k-dense-replace");
  needs_experts(shared_gate, "--moe-shared-expert-gate");
  needs_experts(weights_before_choice, "--moe-router-pre-softmax");
  needs_experts(balance_factor.value_or(0) != 0, "--moe-aux-loss-coeff");
  needs_experts(z_factor.value_or(0) != 0, "--moe-z-loss-coeff");
  needs_experts(balancing.has_value(), "--moe-router-load-balancing-type");
  if (const char* flag = router.given()) needs_experts(true, flag);
  needs_experts(capacity.factor.value_or(0) > 0, "--moe-expert-capacity-factor");
  needs_experts(capacity.pads, "--moe-pad-expert-input-to-capacity");
  if (!config.experts) return;
  ExpertFacts& facts = *config.experts;
  if (experts) facts.experts = *experts;
  if (choices) facts.choices = *choices;
  router.apply(facts);
  capacity.apply(facts);
  // Of a sigmoid Megatron-core ignores this flag.
  if (weights_before_choice && facts.score == ScoreKind::kSoftmax) facts.normalized = false;
  if (balance_factor) facts.balance_factor = *balance_factor;
  if (balancing && *balancing != "aux_loss" && *balancing != "seq_aux_loss" &&
      *balancing != "none") {
    throw Error(Fault::kUsage,
                "--moe-router-load-balancing-type: got {}, which piton pretrain, finetune and plan "
                "translate; wanted aux_loss, seq_aux_loss or none",
                *balancing);
  }
  if (balancing) facts.balances_samples = *balancing == "seq_aux_loss";
  if (z_factor) facts.z_factor = *z_factor;
  if (shared_ffn_hidden) facts.shared_ffn_hidden = *shared_ffn_hidden;
  if (shared_gate) facts.shared_gate = true;
  if (balancing == "none" && facts.balance_factor != 0) {
    throw Error(Fault::kUsage,
                "--moe-router-load-balancing-type: got none with --moe-aux-loss-coeff {}; leave "
                "one of them out",
                facts.balance_factor);
  }
  if (shared_ffn_hidden && shared_experts) {
    throw Error(Fault::kUsage,
                "--n-shared-experts: --moe-shared-expert-intermediate-size is given too; leave one "
                "of them out");
  }
  if (shared_experts) check_range("--n-shared-experts", *shared_experts, 0, 1 << 16);
  if (names_layers) facts.dense_layers = dense_layers(*expert_layers, config.layers);
  if (first == kNotGiven) return;
  check_range("--first-k-dense-replace", first, 0, config.layers);
  if (!facts.dense_layers.empty() && first != 0) {
    throw Error(Fault::kUsage,
                "--first-k-dense-replace: --moe-layer-freq names the layers too; leave one of them "
                "out");
  }
  for (std::int64_t layer = 0; layer < first; ++layer) facts.dense_layers.push_back(layer);
}

MlpOptions MlpOptions::of(const ModelConfig& config) {
  MlpOptions options;
  switch (config.activation) {
    case ActivationKind::kSilu:
      options.activation = "swiglu";
      break;
    case ActivationKind::kGeluTanh:
      options.activation = config.gated ? "geglu" : "gelu";
      break;
    case ActivationKind::kGeluErf:
      options.activation = config.gated ? "geglu-erf" : "gelu-erf";
      break;
    case ActivationKind::kSigmoid:  // this and the next of gates alone
    case ActivationKind::kIdentity:
    case ActivationKind::kGeluFast:
      options.activation = config.gated ? "quick-geglu" : "gelu-fast";
      break;
    case ActivationKind::kRelu:
      options.activation = "relu";
      break;
    case ActivationKind::kSquaredRelu:
      options.activation = "squared-relu";
      break;
  }
  const GateRule usual = config.gated ? family_facts(config.family).gate_rule : GateRule();
  if (config.gate_rule.bound != usual.bound) options.gate_bound = config.gate_rule.bound;
  if (config.gate_rule.offset != usual.offset) options.gate_offset = config.gate_rule.offset;
  if (config.experts) {
    options.experts = config.experts->experts;
    options.choices = config.experts->choices;
    options.weights_before_choice =
        !config.experts->normalized && config.experts->score == ScoreKind::kSoftmax;
    options.router = RouterOptions::of(*config.experts);
    options.capacity = CapacityOptions::of(*config.experts);
    if (config.experts->balance_factor != 0)
      options.balance_factor = config.experts->balance_factor;
    if (config.experts->balances_samples) options.balancing = "seq_aux_loss";
    if (config.experts->z_factor != 0) options.z_factor = config.experts->z_factor;
    if (config.experts->ffn_hidden != 0) options.expert_ffn_hidden = config.experts->ffn_hidden;
    if (config.experts->shared_ffn_hidden != 0)
      options.shared_ffn_hidden = config.experts->shared_ffn_hidden;
    options.shared_gate = config.experts->shared_gate;
    if (!config.experts->dense_layers.empty())
      options.expert_layers = layer_pattern(*config.experts, config.layers);
  }
  return options;
}

MlpOptions MlpOptions::without_experts() const {
  MlpOptions dense = *this;
  dense.experts = dense.choices = dense.expert_ffn_hidden = std::nullopt;
  dense.shared_ffn_hidden = dense.shared_experts = dense.dense_first = std::nullopt;
  dense.expert_layers = dense.balancing = std::nullopt;
  dense.balance_factor = dense.z_factor = std::nullopt;
  dense.shared_gate = dense.weights_before_choice = false;
  dense.router = {};
  dense.capacity = {};
  return dense;
}

}  // namespace piton
