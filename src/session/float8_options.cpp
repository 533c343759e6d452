#include "session/float8_options.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

// The value of `flag`, or 1. Throws for a number of layers that no stack of the model has.
std::int64_t layers_of(const char* flag, const std::optional<std::int64_t>& value,
                       std::int64_t layers) {
  const std::int64_t number = value.value_or(1);
  if (number >= 0 && number <= layers) return number;
  throw Error(Fault::kUsage, "--{}: got {}, wanted 0 to {}, the layers of the model", flag, number,
              layers);
}

void refuse_without(bool needed, bool given, const char* flag, const char* missing) {
  if (given && !needed)
    throw Error(Fault::kUsage, "--{}: needs --{}, which is not given", flag, missing);
}

}  // namespace

Float8Rules Float8Options::rules(const ModelConfig& model, bool codes) const {
  const Float8Options none;
  refuse_without(given(), recipe != none.recipe, "fp8-recipe", "fp8-format e4m3 (or hybrid)");
  refuse_without(given(), ends_in_bf16, "first-last-layers-bf16", "fp8-format e4m3 (or hybrid)");
  refuse_without(ends_in_bf16, first_in_bf16.has_value(), "num-layers-at-start-in-bf16",
                 "first-last-layers-bf16");
  refuse_without(ends_in_bf16, last_in_bf16.has_value(), "num-layers-at-end-in-bf16",
                 "first-last-layers-bf16");
  if (!given()) return {};
  if (model.dtype != DType::kBF16) {
    throw Error(Fault::kUsage,
                "--fp8-format {}: the other numbers are {}, wanted bf16; give --bf16", format,
                name(model.dtype));
  }
  if (model.experts) {
    throw Error(Fault::kUsage,
                "--fp8-format {}: the products of experts are in bf16 alone; leave it out", format);
  }
  if (codes) {
    throw Error(Fault::kUsage,
                "--fp8-format {}: weights held as codes (--qlora) are multiplied in bf16 alone; "
                "leave one of them out",
                format);
  }
  Float8Rules rules;
  rules.products.recipe =
      recipe == "blockwise" ? Float8Recipe::kBlockwise : Float8Recipe::kTensorwise;
  rules.products.gradients = format == "hybrid" ? Float8Format::kE5M2 : Float8Format::kE4M3;
  if (!ends_in_bf16) return rules;
  rules.first_in_bf16 = layers_of("num-layers-at-start-in-bf16", first_in_bf16, model.layers);
  rules.last_in_bf16 = layers_of("num-layers-at-end-in-bf16", last_in_bf16, model.layers);
  return rules;
}

void check_float8(const Kernels& kernels, const Float8Rules& rules) {
  if (!rules.products.given()) return;
  const std::string obstacle = kernels.float8_obstacle(rules.products.recipe);
  if (obstacle.empty()) return;
  throw Error(Fault::kUsage, "--fp8-format: {}; leave it out, or use --kernels cpu", obstacle);
}

std::string about_float8(const Float8Options& options, const Device& device) {
  if (!options.given()) return "";
  const bool emulated = device.place().kind == DeviceKind::kHost;
  return fmt::format(
      "linears multiply in FP8 ({}, {}){}", options.format, options.recipe,
      emulated ? ", which a processor emulates: steps take longer than in bf16" : "");
}

}  // namespace piton
