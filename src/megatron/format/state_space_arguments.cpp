#include "megatron/format/state_space_arguments.h"

#include <string>

namespace piton {
namespace {

using Kind = PickleValue::Kind;

// Megatron-core's norm inside Mamba-2 has this, whatever --norm-epsilon is.
constexpr double kInnerNormEps = 1e-5;

// --spec MODULE NAME; those of MambaModel have its name.
bool has_mamba_spec(const ArgumentValues& arguments) {
  const PickleValue* spec = arguments.find("spec");
  if (spec == nullptr || spec->kind != Kind::kList || spec->items.empty()) return false;
  const PickleValue& last = *spec->items.back();
  return last.kind == Kind::kText && last.text.find("mamba") != last.text.npos;
}

}  // namespace

StateSpaceOptions state_space_options(const ArgumentValues& arguments) {
  StateSpaceOptions options;
  const std::string pattern =
      arguments.word(arguments.either("hybrid_override_pattern", "hybrid_layer_pattern"), "");
  if (!pattern.empty()) options.pattern = pattern;
  options.hybrid =
      !options.pattern && (arguments.flag("is_hybrid_model", false) || has_mamba_spec(arguments));
  if (!options.pattern && !options.hybrid) return options;
  if (options.hybrid) {
    options.attention_share = arguments.number("hybrid_attention_ratio", 0);
    options.mlp_share = arguments.number("hybrid_mlp_ratio", 0);
  }
  options.heads = arguments.size("mamba_num_heads");
  options.groups = arguments.size("mamba_num_groups");
  options.head_size = arguments.size("mamba_head_dim");
  options.state_size = arguments.size("mamba_state_dim");
  options.width = arguments.size("mamba_d_conv");
  return options;
}

void set_state_space(const ArgumentValues& arguments, const StateSpaceOptions& options,
                     ModelConfig& model) {
  if (!options.pattern && !options.hybrid) return;
  const char* name = "hybrid_override_pattern";
  try {
    options.set_layers(model);
    options.apply(model);
  } catch (const Error& error) {
    arguments.wrong(name, fmt::format("letters of a model that is possible ({})", error.what()));
  }
  if (model.norm_eps != kInnerNormEps) {
    arguments.wrong("norm_epsilon",
                    "1e-05, which the norms inside Megatron-core's Mamba-2 have whatever is given");
  }
}

}  // namespace piton
