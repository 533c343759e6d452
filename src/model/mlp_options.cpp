#include "model/mlp_options.h"

#include <cmath>

#include "base/options/option_range.h"
#include "model/config.h"

namespace piton {
namespace {

// The activation that the flags name; "" if none does. Throws Error(kUsage) if they disagree.
std::string named(const MlpOptions& options) {
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
  agree(options.exact_gelu, "no-bias-gelu-fusion", "gelu-erf");
  return name;
}

}  // namespace

void MlpOptions::apply(ModelConfig& config) const {
  const std::string name = named(*this);
  if (is_x_model && (name == "swiglu" || name == "geglu")) {
    throw Error(Fault::kUsage,
                "--is-x-model: is already a gated GELU, but the given activation is {}; wanted "
                "gelu, gelu-erf, gelu-fast, relu or none",
                name);
  }
  if (name == "gelu-erf") {
    config.activation = ActivationKind::kGeluErf;
  } else if (name == "gelu-fast") {
    config.activation = ActivationKind::kGeluFast;
  } else if (name == "relu") {
    config.activation = ActivationKind::kRelu;
  } else if (name == "swiglu") {
    config.activation = ActivationKind::kSilu;
  } else if (!name.empty() || is_x_model) {
    config.activation = ActivationKind::kGeluTanh;
  }
  if (!name.empty()) config.gated = name == "swiglu" || name == "geglu";
  if (is_x_model) config.gated = true;
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
  needs_experts(weights_before_choice, "--moe-router-pre-softmax");
  needs_experts(balance_factor.value_or(0) != 0, "--moe-aux-loss-coeff");
  needs_experts(balancing.has_value(), "--moe-router-load-balancing-type");
  if (!config.experts) return;
  ExpertFacts& facts = *config.experts;
  if (experts) facts.experts = *experts;
  if (choices) facts.choices = *choices;
  if (weights_before_choice) facts.normalized = false;
  if (balance_factor) facts.balance_factor = *balance_factor;
  if (balancing == "none" && facts.balance_factor != 0) {
    throw Error(Fault::kUsage,
                "--moe-router-load-balancing-type: got none with --moe-aux-loss-coeff {}; leave "
                "one of them out",
                facts.balance_factor);
  }
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
      options.activation = "gelu-erf";
      break;
    case ActivationKind::kGeluFast:
      options.activation = "gelu-fast";
      break;
    case ActivationKind::kRelu:
      options.activation = "relu";
      break;
  }
  if (config.experts) {
    options.experts = config.experts->experts;
    options.choices = config.experts->choices;
    options.weights_before_choice = !config.experts->normalized;
    if (config.experts->balance_factor != 0)
      options.balance_factor = config.experts->balance_factor;
  }
  return options;
}

}  // namespace piton
