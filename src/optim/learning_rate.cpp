#include "optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/options/option_range.h"

namespace piton {

namespace {

// One length of the schedule: the user gives it in steps, in samples, in tokens, or not at all.
// steps() converts it to steps.
struct Length {
  std::string_view name;  // "--lr-decay"
  std::optional<std::int64_t> iters;
  std::optional<std::int64_t> samples;
  std::optional<std::int64_t> tokens;

  // `batch`: samples of a step; `sequence`: tokens of a sample.
  std::optional<double> steps(std::int64_t least, std::int64_t batch, std::int64_t sequence) const {
    exclude("iters", iters, "samples", samples);
    exclude("iters", iters, "tokens", tokens);
    exclude("samples", samples, "tokens", tokens);
    const auto size = static_cast<double>(batch);
    if (iters) return in_range("iters", *iters, least);
    if (samples) return in_range("samples", *samples, least) / size;
    if (!tokens) return std::nullopt;
    const double all = in_range("tokens", *tokens, least);
    PITON_ASSERT(sequence > 0, "{}-tokens of samples of {}", name, sequence);
    return all / (size * static_cast<double>(sequence));
  }

 private:
  double in_range(std::string_view unit, std::int64_t value, std::int64_t least) const {
    check_range(fmt::format("learning rate: {}-{}", name, unit), value, least);
    return static_cast<double>(value);
  }
  void exclude(std::string_view unit, const std::optional<std::int64_t>& value,
               std::string_view other_unit, const std::optional<std::int64_t>& other) const {
    if (!value || !other) return;
    throw Error(Fault::kUsage, "learning rate: {0}-{1} and {0}-{2} exclude each other; give one",
                name, unit, other_unit);
  }
};

std::vector<Length> lengths_of(const LearningRateOptions& options) {
  const bool warms = options.warmup_iters != 0;
  return {{"--lr-decay", options.decay_iters, options.decay_samples, options.decay_tokens},
          {"--lr-warmup", warms ? std::optional(options.warmup_iters) : std::nullopt,
           options.warmup_samples, options.warmup_tokens},
          {"--lr-wsd-decay", options.annealing_iters, options.annealing_samples, {}}};
}

void check_rates(const LearningRateOptions& options) {
  const auto check_least = [](const char* flag, double value, const char* most_flag, double most) {
    if (value >= 0 && value <= most) return;
    throw Error(Fault::kUsage, "learning rate: {}: got {}, wanted 0 to {}, which is {}", flag,
                value, most_flag, most);
  };
  check_positive("learning rate: --lr", options.lr);
  check_least("--min-lr", options.min_lr, "--lr", options.lr);
  double highest = options.lr;
  if (options.decoupled_lr) {
    check_positive("learning rate: --decoupled-lr", *options.decoupled_lr);
    highest = std::min(highest, *options.decoupled_lr);
    check_least("--decoupled-min-lr", options.decoupled_min_lr.value_or(options.min_lr),
                "--decoupled-lr", *options.decoupled_lr);
  } else if (options.decoupled_min_lr) {
    throw Error(Fault::kUsage,
                "learning rate: --decoupled-min-lr: needs --decoupled-lr; give both, or leave it "
                "out");
  }
  check_least("--lr-warmup-init", options.warmup_init,
              highest < options.lr ? "--decoupled-lr" : "--lr", highest);
  if (options.lora_plus_ratio)
    check_positive("learning rate: --lora-plus-lr-ratio", *options.lora_plus_ratio);
}

}  // namespace

std::vector<RateGroup> LearningRateOptions::separate_groups() const {
  std::vector<RateGroup> groups;
  if (decoupled_lr) groups.push_back(RateGroup::kVocabulary);
  if (lora_plus_ratio) groups.push_back(RateGroup::kAdapterOutputs);
  return groups;
}

void check_one_unit(const LearningRateOptions& options, bool by_samples) {
  const std::vector<Length> lengths = lengths_of(options);
  const auto tokens =
      std::ranges::find_if(lengths, [](const Length& length) { return length.tokens.has_value(); });
  const std::string_view unit = by_samples ? "samples" : "iters";
  for (const Length& length : lengths) {
    if (tokens != lengths.end() && (length.iters || length.samples)) {
      throw Error(Fault::kUsage,
                  "learning rate: {}-{} and {}-tokens: lengths of one schedule are all in "
                  "iterations, all in samples or all in tokens",
                  length.name, length.iters ? "iters" : "samples", tokens->name);
    }
    if (!(by_samples ? length.iters : length.samples)) continue;
    throw Error(Fault::kUsage,
                "learning rate: {0}-{1}: this run is by --train-{2}, whose lengths are in {2} too; "
                "give {0}-{2}",
                length.name, by_samples ? "iters" : "samples", unit);
  }
}

LearningRate::LearningRate(const LearningRateOptions& options, double train_steps,
                           std::int64_t global_batch, std::int64_t sequence)
    : options_(options), batch_(static_cast<double>(global_batch)) {
  check_rates(options);
  const std::vector<Length> lengths = lengths_of(options);
  decay_ = lengths[0].steps(1, global_batch, sequence).value_or(train_steps);
  warmup_ = lengths[1].steps(0, global_batch, sequence).value_or(0);
  if (options.warmup_fraction) {
    if (warmup_ > 0) {
      throw Error(
          Fault::kUsage,
          "learning rate: --lr-warmup-fraction {} and a warm-up of {} steps exclude each other; "
          "give one",
          *options.warmup_fraction, warmup_);
    }
    if (!(*options.warmup_fraction >= 0) || !(*options.warmup_fraction < 1)) {
      throw Error(Fault::kUsage,
                  "learning rate: --lr-warmup-fraction: got {}, wanted at least 0 and below 1",
                  *options.warmup_fraction);
    }
    warmup_ = *options.warmup_fraction * decay_;
  }
  if (decay_ <= 0) {
    throw Error(
        Fault::kUsage,
        "learning rate: nothing to decay over: got {} training steps, wanted at least 1; give "
        "--train-iters or --lr-decay-iters",
        train_steps);
  }
  if (warmup_ >= decay_) {
    throw Error(Fault::kUsage,
                "learning rate: a warm-up of {} steps does not end before the decay of {}; lower "
                "--lr-warmup-iters or raise --lr-decay-iters",
                warmup_, decay_);
  }
  if (options.warmup_init > 0 && warmup_ == 0) {
    throw Error(Fault::kUsage,
                "learning rate: --lr-warmup-init: got {} without a warm-up; give "
                "--lr-warmup-iters too, or leave it out",
                options.warmup_init);
  }
  const std::optional<double> last = lengths[2].steps(1, global_batch, sequence);
  if (options.decay_style != DecayStyle::kWsd) {
    if (last) {
      throw Error(Fault::kUsage,
                  "learning rate: --lr-wsd-decay-iters: needs --lr-decay-style WSD; give both, or "
                  "leave it out");
    }
    return;
  }
  if (!last) {
    throw Error(Fault::kUsage,
                "learning rate: --lr-decay-style WSD: needs --lr-wsd-decay-iters, the number of "
                "steps in which the rate falls to --min-lr");
  }
  annealing_ = *last;
  if (warmup_ + annealing_ > decay_) {
    throw Error(Fault::kUsage,
                "learning rate: --lr-wsd-decay-iters: got {} steps, wanted at most {}: the decay "
                "of {} steps minus the warm-up",
                annealing_, decay_ - warmup_, decay_);
  }
}

GroupRates LearningRate::of_groups(double steps) const {
  GroupRates rates(at(steps));
  if (options_.decoupled_lr) {
    rates.vocabulary =
        at(steps, *options_.decoupled_lr, options_.decoupled_min_lr.value_or(options_.min_lr));
  }
  rates.adapter_outputs *= options_.lora_plus_ratio.value_or(1);
  return rates;
}

double LearningRate::at(double steps, double lr, double min_lr) const {
  const double n = steps;
  const double init = options_.warmup_init;
  if (warmup_ > 0 && n <= warmup_) return init + (lr - init) * n / warmup_;
  if (options_.decay_style == DecayStyle::kConstant) return lr;
  if (n > decay_) return min_lr;
  if (options_.decay_style == DecayStyle::kInverseSquareRoot) {
    const double warmup = std::max(warmup_ * batch_, 1.0);  // Megatron-LM counts in samples
    return std::max(min_lr, lr * std::sqrt(warmup / std::max(n * batch_, 1.0)));
  }
  if (options_.decay_style == DecayStyle::kWsd) {
    return min_lr + annealing_share(n) * (lr - min_lr);
  }
  const double ratio = (n - warmup_) / (decay_ - warmup_);
  const double share = options_.decay_style == DecayStyle::kLinear
                           ? 1 - ratio
                           : (std::cos(std::numbers::pi * ratio) + 1) / 2;
  return min_lr + share * (lr - min_lr);
}

double LearningRate::annealing_share(double steps) const {
  const double ratio = (steps - (decay_ - annealing_)) / annealing_;
  if (ratio <= 0) return 1;
  switch (options_.annealing_style) {
    case AnnealingStyle::kLinear:
      return 1 - ratio;
    case AnnealingStyle::kCosine:
      return (std::cos(std::numbers::pi * ratio) + 1) / 2;
    case AnnealingStyle::kExponential:
      return 2 * std::pow(0.5, ratio) - 1;
    case AnnealingStyle::kMinusSquareRoot:
      return 1 - std::sqrt(ratio);
  }
  return 1;
}

}  // namespace piton
