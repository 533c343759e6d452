#include "model/mlp_options.h"

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
  return options;
}

}  // namespace piton
