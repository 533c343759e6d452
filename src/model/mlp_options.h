// The activation of a decoder's MLP, with Megatron's flags.
//
//   --activation   y                          inner width
//   gelu           gelu(x), tanh form         f
//   gelu-erf       gelu(x), exact             f              Megatron: --no-bias-gelu-fusion
//   gelu-fast      x sigmoid(1.702 x)         f
//   relu           max(x, 0)                  f
//   swiglu         silu(gate) up              f each         Megatron: --swiglu
//   geglu          gelu(gate) up              f each
//
// f is --ffn-hidden-size. --is-x-model is GeGLU with a first matrix of f rows, as in a plain MLP:
// half of them are the gate, so the inner width is f / 2. --activation chooses its gelu.
#pragma once

#include <optional>
#include <string>

#include "base/options/options.h"

namespace piton {

struct ModelConfig;

struct MlpOptions {
  std::optional<std::string> activation;
  bool swiglu = false;
  bool exact_gelu = false;
  bool is_x_model = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"activation",
             "activation of the MLP (default: that of the family)",
             {.resume = Resume::kMustMatch,
              .choices = {"gelu", "gelu-erf", "gelu-fast", "relu", "swiglu", "geglu"}}},
      activation);
    v(Option{"swiglu", "same as --activation swiglu", same}, swiglu);
    v(Option{"no-bias-gelu-fusion",
             "use the exact GELU, like Megatron with this flag; same as --activation gelu-erf",
             same},
      exact_gelu);
    v(Option{"is-x-model", "use GeGLU with half of --ffn-hidden-size as its inner width", same},
      is_x_model);
  }

  // Sets the activation and whether it is gated; does not change f. Throws Error(kUsage) if flags
  // contradict each other.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static MlpOptions of(const ModelConfig& config);
};

}  // namespace piton
