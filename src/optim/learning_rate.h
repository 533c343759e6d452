// The learning rate of each step: a warm-up, then a decay, as Megatron-LM computes them.
//
// After n successful steps, with w warm-up steps, D decay steps and A annealing steps:
//
//   n <= w, w > 0    i + (lr - i) * n / w            (so i, --lr-warmup-init, for the first step)
//   constant         lr
//   n > D            min_lr
//   inverse root     max(min_lr, lr * sqrt(max(w b, 1) / max(n b, 1))),  b = samples per step
//   otherwise        min_lr + c * (lr - min_lr),  r = (n - w) / (D - w)
//                    c = 1 - r (linear),  c = (1 + cos(pi r)) / 2 (cosine)
//   WSD              c = 1 for n <= D - A; after that, with r = (n - D + A) / A:
//                    c = 1 - r (linear), (1 + cos(pi r)) / 2 (cosine),
//                    2 * 2^-r - 1 (exponential), 1 - sqrt(r) (minus_sqrt)
//
// A length given in samples is divided by the global batch size, and one given in tokens by the
// tokens of that batch, so w, D and A may be fractional.
// While the batch size grows (train/run/batch_sizes.h), n is fractional too: the samples of the
// successful steps, divided by the full global batch size.
// The rate is a pure function of n, computed in double. It has no state, so a resumed run continues
// exactly. Embedding and head have another lr and min_lr under --decoupled-lr, and B of adapters
// has a multiple of the rate under --lora-plus-lr-ratio (LoRA+, Hayou et al. 2024,
// arXiv:2402.12354). Skipped steps (a non-finite gradient, a spike) do not count.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/options/options.h"
#include "ops/parameter.h"

namespace piton {

// kWsd: warmup-stable-decay.
enum class DecayStyle : std::uint8_t { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
enum class AnnealingStyle : std::uint8_t { kExponential, kLinear, kCosine, kMinusSquareRoot };

// The rates of one step, by Parameter::rate_group.
struct GroupRates {
  double base = 0;
  double vocabulary = 0;
  double adapter_outputs = 0;

  GroupRates() = default;
  // One rate for all groups.
  GroupRates(double rate)  // NOLINT(google-explicit-constructor): most runs have one
      : base(rate), vocabulary(rate), adapter_outputs(rate) {}
  double of(RateGroup group) const {
    if (group == RateGroup::kBase) return base;
    return group == RateGroup::kVocabulary ? vocabulary : adapter_outputs;
  }
};

struct LearningRateOptions {
  double lr = 1.5e-4;
  double min_lr = 0;
  std::optional<double> decoupled_lr, decoupled_min_lr;  // of RateGroup::kVocabulary
  std::optional<double> lora_plus_ratio;                 // of RateGroup::kAdapterOutputs to kBase
  double warmup_init = 0;
  DecayStyle decay_style = DecayStyle::kLinear;
  std::optional<std::int64_t> decay_iters, decay_samples, decay_tokens;
  std::int64_t warmup_iters = 0;
  std::optional<std::int64_t> warmup_samples, warmup_tokens;
  std::optional<double> warmup_fraction;
  AnnealingStyle annealing_style = AnnealingStyle::kExponential;
  std::optional<std::int64_t> annealing_iters, annealing_samples;
  // No option: decay_* was not given, it is the length of the run. A stored configuration leaves it
  // out, so that a run of another length derives it again.
  bool decay_is_derived = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kSchedule};
    v(Option{"lr", "peak learning rate", same}, lr);
    v(Option{"min-lr", "learning rate at the end of the decay", same}, min_lr);
    v(Option{"decoupled-lr",
             "peak learning rate of the token embedding and of the head (default: --lr)", same},
      decoupled_lr);
    v(Option{"decoupled-min-lr", "their learning rate at the end of the decay (default: --min-lr)",
             same},
      decoupled_min_lr);
    v(Option{"lora-plus-lr-ratio",
             "LoRA+: the B matrices of adapters, and trained vectors, have this multiple of the "
             "learning rate (such as 16)",
             same},
      lora_plus_ratio);
    v(Option{"lr-decay-style", "shape of the decay after the warmup", same},
      Choice(decay_style, {{"constant", DecayStyle::kConstant},
                           {"linear", DecayStyle::kLinear},
                           {"cosine", DecayStyle::kCosine},
                           {"inverse-square-root", DecayStyle::kInverseSquareRoot},
                           {"WSD", DecayStyle::kWsd}}));
    v(Option{"lr-decay-iters", "steps until --min-lr is reached (default: all training steps)",
             same},
      decay_iters);
    v(Option{"lr-warmup-iters",
             "steps in which the learning rate rises from --lr-warmup-init to --lr", same},
      warmup_iters);
    v(Option{"lr-warmup-init", "learning rate at which the warm-up begins", same}, warmup_init);
    v(Option{"lr-warmup-fraction", "length of the warmup as a fraction of the decay steps", same},
      warmup_fraction);
    v(Option{"lr-wsd-decay-style", "shape of the last part of WSD, the fall to --min-lr", same},
      Choice(annealing_style, {{"exponential", AnnealingStyle::kExponential},
                               {"linear", AnnealingStyle::kLinear},
                               {"cosine", AnnealingStyle::kCosine},
                               {"minus_sqrt", AnnealingStyle::kMinusSquareRoot}}));
    v(Option{"lr-wsd-decay-iters", "steps of the last part of WSD", same}, annealing_iters);
    v(Option{"lr-decay-samples", "--lr-decay-iters in samples", same}, decay_samples);
    v(Option{"lr-warmup-samples", "--lr-warmup-iters in samples", same}, warmup_samples);
    v(Option{"lr-decay-tokens", "--lr-decay-iters in tokens: samples x --seq-length", same},
      decay_tokens);
    v(Option{"lr-warmup-tokens", "--lr-warmup-iters in tokens", same}, warmup_tokens);
    v(Option{"lr-wsd-decay-samples", "--lr-wsd-decay-iters in samples", same}, annealing_samples);
  }

  // The groups that do not have the rate of kBase.
  std::vector<RateGroup> separate_groups() const;
};

// Checks that all given lengths have the same unit, as Megatron-LM does: iterations in a run
// with --train-iters, samples in a run with --train-samples (`by_samples`), or tokens
// in either.
// Throws Error(kUsage) that names the flag. For options as given: a settled configuration may have
// an end in samples for a warm-up in tokens.
void check_one_unit(const LearningRateOptions& options, bool by_samples);

class LearningRate {
 public:
  // `train_steps`: steps of the whole run, the default of --lr-decay-iters; may be fractional.
  // `global_batch`: samples per step. `sequence`: tokens per sample, 0 where no length is in
  // tokens. Throws Error(kUsage) naming the flag if a value or a combination of values is not
  // valid.
  LearningRate(const LearningRateOptions& options, double train_steps, std::int64_t global_batch,
               std::int64_t sequence = 0);

  // The learning rate of the step after `steps` >= 0 successful steps, which may be fractional.
  double at(double steps) const { return at(steps, options_.lr, options_.min_lr); }
  GroupRates of_groups(double steps) const;

  double decay_steps() const { return decay_; }    // D
  double warmup_steps() const { return warmup_; }  // w

 private:
  double at(double steps, double lr, double min_lr) const;
  double annealing_share(double steps) const;

  LearningRateOptions options_;
  double batch_;
  double decay_ = 0;
  double warmup_ = 0;
  double annealing_ = 0;  // A
};

}  // namespace piton
