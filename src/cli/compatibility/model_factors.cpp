#include "cli/compatibility/model_factors.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace piton::cli {
namespace {

constexpr const char* kModelBase = "dim-model-base";
constexpr const char* kOutputFactor = "output-multiplier-scale";
constexpr const char* kDepth = "scale-depth";
constexpr const char* kWindow = "window-size";

double factor_of(const char* flag, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number) ||
      number <= 0) {
    throw Error(Fault::kUsage, "--{}: got \"{}\", wanted a number above 0", flag, text);
  }
  return number;
}

void set_once(OptionSet& set, const char* flag, const char* option, const std::string& value) {
  if (set.given(option))
    throw Error(Fault::kUsage, "--{}: --{} says the same; leave one of the two out", flag, option);
  set.parse({fmt::format("--{}={}", option, value)}, fmt::format("--{}", flag));
}

// The size of the model that `option` gives, else its preset.
double size_for(const char* flag, const char* option, const std::optional<std::int64_t>& given,
                std::int64_t ModelConfig::*size, const ModelOptions& model) {
  if (given) return static_cast<double>(*given);
  if (model.model.empty())
    throw Error(Fault::kUsage, "--{}: is a share of a size of the model; give --{}", flag, option);
  const ModelConfig config = model.resolve(1);  // the vocabulary does not matter here
  return static_cast<double>(config.*size);
}

// "(L, R)", "L,R" or "[L, R]", as Megatron reads a tuple.
std::pair<std::int64_t, std::int64_t> window_of(const std::string& text) {
  std::string numbers;
  for (const char one : text) {
    if (std::string_view("()[] ").find(one) == std::string_view::npos) numbers += one;
  }
  std::int64_t left = 0;
  std::int64_t right = 0;
  const char* const end = numbers.data() + numbers.size();
  const auto first = std::from_chars(numbers.data(), end, left);
  const bool two = first.ec == std::errc() && first.ptr != end && *first.ptr == ',';
  const auto second = two ? std::from_chars(first.ptr + 1, end, right) : first;
  if (!two || second.ec != std::errc() || second.ptr != end || left < -1 || right < -1) {
    throw Error(Fault::kUsage,
                "--{}: got \"{}\", wanted two numbers such as 4095,0: how many earlier and later "
                "keys a token sees, -1: all",
                kWindow, text);
  }
  return {left, right};
}

}  // namespace

void read_model_factors(const MegatronFlags& given, OptionSet& set, const ModelOptions& model) {
  if (const auto text = given.value_of(kModelBase)) {
    const double base = factor_of(kModelBase, *text);
    const double hidden =
        size_for(kModelBase, "hidden-size", model.hidden, &ModelConfig::hidden, model);
    set_once(set, kModelBase, "logits-scaling", fmt::format("{}", hidden / base));
  }
  if (const auto text = given.value_of(kOutputFactor)) {
    set_once(set, kOutputFactor, "logits-scaling",
             fmt::format("{}", 1 / factor_of(kOutputFactor, *text)));
  }
  if (const auto text = given.value_of(kDepth)) {
    const double scale = factor_of(kDepth, *text);
    const double layers = size_for(kDepth, "num-layers", model.layers, &ModelConfig::layers, model);
    set_once(set, kDepth, "residual-multiplier", fmt::format("{}", scale / std::sqrt(layers)));
  }
  if (const auto text = given.value_of(kWindow)) {
    const auto [left, right] = window_of(*text);
    if (right > 0) {
      throw Error(Fault::kUsage,
                  "--{}: got {} later keys, wanted 0: attention is causal in decoders", kWindow,
                  right);
    }
    if (left >= 0) set_once(set, kWindow, "pre-tockens", fmt::format("{}", left));
  }
}

}  // namespace piton::cli
