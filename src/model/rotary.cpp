#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/options/option_range.h"
#include "model/config.h"
#include "model/families.h"

namespace piton {
namespace {

using Kind = RotaryScaling::Kind;

constexpr double kTurn = 2 * std::numbers::pi;

double llama3(const RotaryScaling& s, double frequency) {
  const double turns =
      static_cast<double>(s.original_positions) * frequency / kTurn;  // turns in N positions
  if (turns < s.low) return frequency / s.factor;
  if (turns > s.high) return frequency;
  const double share = (turns - s.low) / (s.high - s.low);
  return (1 - share) * frequency / s.factor + share * frequency;
}

// The index of the pair, as a real number, that makes `turns` turns in N positions.
double pair_of(const RotaryScaling& s, double turns, double base, double channels) {
  return channels * std::log(static_cast<double>(s.original_positions) / (turns * kTurn)) /
         (2 * std::log(base));
}

void yarn(const RotaryScaling& s, double base, std::vector<double>& frequencies) {
  const double channels = 2 * static_cast<double>(frequencies.size());
  double first = pair_of(s, s.fast, base, channels);
  double last = pair_of(s, s.slow, base, channels);
  if (s.whole_pairs) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, channels - 1);
  if (first == last) last += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double share = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] *= share / s.factor + (1 - share);
  }
}

double yarn_magnitude(double factor, double share) {
  return factor <= 1 ? 1 : 0.1 * share * std::log(factor) + 1;
}

Kind kind_of(const std::string& name) {
  if (name == "linear") return Kind::kLinear;
  if (name == "dynamic") return Kind::kDynamic;
  if (name == "llama3") return Kind::kLlama3;
  if (name == "yarn") return Kind::kYarn;
  return name == "longrope" ? Kind::kLongrope : Kind::kNone;
}

std::string name_of(Kind kind) {
  for (const char* name : {"linear", "dynamic", "llama3", "yarn", "longrope"}) {
    if (kind_of(name) == kind) return name;
  }
  return "none";
}

void refuse_combination(const char* flag, const std::string& type, const char* wanted) {
  if (type == wanted) return;
  throw Error(Fault::kUsage,
              "{}: it means --rotary-scaling-type {}, but that is {}; leave one of them out", flag,
              wanted, type);
}

}  // namespace

std::int64_t rotary_length(const RotaryScaling& scaling, std::int64_t sequence) {
  if (scaling.kind == Kind::kDynamic) return std::max(sequence, scaling.original_positions);
  if (scaling.kind == Kind::kLongrope)
    return scaling.original_positions + (sequence > scaling.original_positions ? 1 : 0);
  return 0;
}

bool depends_on_length(const RotaryScaling& scaling) {
  return scaling.kind == Kind::kDynamic || scaling.kind == Kind::kLongrope;
}

bool changes_all_angles(const RotaryScaling& scaling, std::int64_t before, std::int64_t after) {
  return scaling.kind == Kind::kLongrope &&
         rotary_length(scaling, before) != rotary_length(scaling, after);
}

std::vector<double> rotary_frequencies(double base, std::int64_t channels,
                                       const RotaryScaling& scaling, std::int64_t sequence) {
  const auto d = static_cast<double>(channels);
  if (scaling.kind == Kind::kDynamic) {
    const double length = static_cast<double>(rotary_length(scaling, sequence));
    const double stretch =
        scaling.factor * length / static_cast<double>(scaling.original_positions) -
        (scaling.factor - 1);
    base *= std::pow(stretch, d / (d - 2));
  }
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < channels / 2; ++i)
    frequencies.push_back(std::pow(base, -2 * static_cast<double>(i) / d));
  if (scaling.kind == Kind::kYarn) yarn(scaling, base, frequencies);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    if (scaling.kind == Kind::kLinear) frequencies[i] /= scaling.factor;
    if (scaling.kind == Kind::kLlama3) frequencies[i] = llama3(scaling, frequencies[i]);
    if (scaling.kind == Kind::kLongrope) {
      frequencies[i] /=
          (sequence > scaling.original_positions ? scaling.long_factors : scaling.short_factors)[i];
    }
  }
  return frequencies;
}

double rotary_magnitude(const RotaryScaling& scaling) {
  if (scaling.kind != Kind::kYarn && scaling.kind != Kind::kLongrope) return 1;
  if (scaling.magnitude) return *scaling.magnitude;
  if (scaling.kind == Kind::kLongrope) {
    if (scaling.factor <= 1) return 1;
    return std::sqrt(1 + std::log(scaling.factor) /
                             std::log(static_cast<double>(scaling.original_positions)));
  }
  if (scaling.numerator != 0 && scaling.denominator != 0) {
    return yarn_magnitude(scaling.factor, scaling.numerator) /
           yarn_magnitude(scaling.factor, scaling.denominator);
  }
  return yarn_magnitude(scaling.factor, 1);
}

double rotary_query_factor(const RotaryScaling& scaling, std::int64_t position) {
  if (scaling.query_growth == 0) return 1;
  const auto lengths = static_cast<double>(position / scaling.original_positions);
  return 1 + scaling.query_growth * std::log(1 + lengths);
}

double rotary_score_factor(const RotaryScaling& scaling) {
  if (scaling.kind != Kind::kYarn || scaling.denominator == 0) return 1;
  const double magnitude = yarn_magnitude(scaling.factor, scaling.denominator);
  return magnitude * magnitude;
}

RotaryRows::RotaryRows(const ModelConfig& config, const RotaryAngles& angles, std::int64_t rows)
    : config_(config),
      angles_(angles),
      half_(config.rotary_channels() / 2),
      magnitude_(rotary_magnitude(angles.scaling)),
      cosine(host_tensor(sum_dtype(config.dtype), {rows, half_})),
      sine(host_tensor(sum_dtype(config.dtype), {rows, half_})) {}

void RotaryRows::fill(std::int64_t row, std::int64_t position, std::int64_t sequence) {
  const std::int64_t length = rotary_length(angles_.scaling, sequence);
  if (frequencies_.empty() || length != length_) {
    frequencies_ =
        rotary_frequencies(angles_.base, config_.rotary_channels(), angles_.scaling, sequence);
    length_ = length;
  }
  const double factor =
      magnitude_ * (angles_.of_queries ? rotary_query_factor(angles_.scaling, position) : 1);
  const double direction = config_.rotary_reversed ? -factor : factor;
  for (std::int64_t i = 0; i < half_; ++i) {
    const double angle = static_cast<double>(position) * frequencies_[static_cast<std::size_t>(i)];
    const std::int64_t at = row * half_ + i;
    if (cosine.dtype() == DType::kF64) {
      cosine.data<double>()[at] = factor * std::cos(angle);
      sine.data<double>()[at] = direction * std::sin(angle);
    } else {
      cosine.data<float>()[at] = static_cast<float>(factor * std::cos(angle));
      sine.data<float>()[at] = static_cast<float>(direction * std::sin(angle));
    }
  }
}

namespace {

// What yarn alone has; of other kinds these options are not given.
void set_yarn(const RotaryOptions& options, RotaryScaling& scaling) {
  scaling.whole_pairs = !options.fractional_pairs;
  if (options.fast) scaling.fast = *options.fast;
  if (options.slow) scaling.slow = *options.slow;
  if (options.query_growth) scaling.query_growth = *options.query_growth;
  const bool both = options.magnitude_of_all.value_or(0) != 0;
  if (options.magnitude && *options.magnitude != 1 && !(both && *options.magnitude > 0)) {
    throw Error(Fault::kUsage,
                "--mscale: got {}, wanted 1, or a number above 0 with --mscale-all-dim",
                *options.magnitude);
  }
  if (!both) return;
  scaling.numerator = options.magnitude.value_or(1);
  scaling.denominator = *options.magnitude_of_all;
}

}  // namespace

void RotaryOptions::apply(ModelConfig& config) const {
  // Megatron's default of latent attention is yarn, with a factor that changes nothing.
  const bool is_yarn = rope_type ? *rope_type == "yarn" : config.latent && scaling_factor;
  std::string type = use_rope_scaling ? "llama3" : interpolation_factor ? "linear" : "none";
  if (type == "none" && is_yarn) type = "yarn";
  if (scaling_type) type = *scaling_type;
  if (rope_type && *rope_type == "yarn") refuse_combination("--rope-type yarn", type, "yarn");
  if (use_rope_scaling) refuse_combination("--use-rope-scaling", type, "llama3");
  if (interpolation_factor)
    refuse_combination("--rotary-seq-len-interpolation-factor", type, "linear");
  if (config.positions != PositionKind::kRotary) {
    // --rotary-base has no effect: scripts of Megatron give it to other models too.
    const char* flag = local_base        ? "--rotary-base-local"
                       : percent         ? "--rotary-percent"
                       : interleaved     ? "--rotary-interleaved"
                       : reversed        ? "--rotary-reversed"
                       : no_rotary_every ? "--no-rope-freq"
                       : type != "none"  ? "--rotary-scaling-type"
                                         : nullptr;
    if (flag != nullptr)
      throw Error(Fault::kUsage, "{}: this model has no rotary positions; leave it out", flag);
    return;
  }
  if (base) config.rotary_base = *base;
  if (local_base) config.local_rotary_base = *local_base;
  if (percent) config.rotary_share = *percent;
  if (interleaved) config.rotary_pairs = true;
  if (reversed) config.rotary_reversed = true;
  if (no_rotary_every) {
    check_range("--no-rope-freq", *no_rotary_every, 1, config.layers);
    config.no_rotary_every = *no_rotary_every;
  }
  const auto stray = [&](const char* flag, bool given) {
    if (given)
      throw Error(Fault::kUsage, "{}: is not used by --rotary-scaling-type {}; leave it out", flag,
                  type);
  };
  stray("--rotary-short-factors", type != "longrope" && !short_factors.empty());
  stray("--rotary-long-factors", type != "longrope" && !long_factors.empty());
  stray("--mscale", type != "yarn" && magnitude);
  stray("--mscale-all-dim", type != "yarn" && magnitude_of_all);
  stray("--rotary-beta-fast", type != "yarn" && fast);
  stray("--rotary-beta-slow", type != "yarn" && slow);
  stray("--rotary-query-growth", type != "yarn" && query_growth);
  stray("--rotary-fractional-pairs", type != "yarn" && fractional_pairs);
  stray("--rotary-scaling-factor", scaling_factor && (type == "none" || interpolation_factor));
  stray("--original-max-position-embeddings",
        original_positions &&
            (type == "none" || (type == "linear" && (scaling_factor || interpolation_factor))));
  if (!scaling_type && type == "none") return;  // keep the family's scaling
  RotaryScaling& scaling = config.rotary_scaling;
  scaling = {.kind = kind_of(type), .short_factors = short_factors, .long_factors = long_factors};
  if (type == "none") return;
  set_yarn(*this, scaling);
  const bool of_latents = config.latent && type == "yarn";
  scaling.original_positions = original_positions.value_or(type == "llama3" ? 8192
                                                           : of_latents     ? 4096
                                                                            : config.max_positions);
  const double length_ratio =
      static_cast<double>(config.max_positions) / static_cast<double>(scaling.original_positions);
  scaling.factor = scaling_factor         ? *scaling_factor
                   : interpolation_factor ? *interpolation_factor
                   : type == "llama3"     ? 8
                                          : length_ratio;
  if (!scaling_factor && !interpolation_factor && type != "llama3" && !original_positions) {
    throw Error(Fault::kUsage,
                "--rotary-scaling-type: {} needs a --rotary-scaling-factor, or "
                "--original-max-position-embeddings to derive it from",
                type);
  }
}

namespace {

// The factor is in the tables of angles of queries, so that it has to be of all their channels.
void check_query_growth(const ModelConfig& config) {
  const double growth = config.rotary_scaling.query_growth;
  if (growth == 0) return;
  constexpr const char* kFlag = "--rotary-query-growth";
  if (!(growth >= 0 && growth <= kMostNumber))
    throw Error(Fault::kUsage, "{}: got {}, wanted 0 to {}", kFlag, growth, kMostNumber);
  const char* other = config.latent                ? "--multi-latent-attention"
                      : config.rotary_share != 1   ? "--rotary-percent"
                      : config.norms_after_rotary  ? "--qk-layernorm-after-rope"
                      : config.no_rotary_every > 0 ? "--no-rope-freq"
                      : config.local_rotary_base   ? "--rotary-base-local"
                                                   : nullptr;
  if (other != nullptr)
    throw Error(Fault::kUsage, "{}: is not with {}; leave one of them out", kFlag, other);
}

}  // namespace

void check_rotary(const ModelConfig& config) {
  if (config.positions != PositionKind::kRotary) return;
  const RotaryScaling& s = config.rotary_scaling;
  if (!(config.rotary_base > 1 && config.rotary_base <= kMostNumber)) {
    throw Error(Fault::kUsage, "--rotary-base: got {}, wanted a number above 1, at most {}",
                config.rotary_base, kMostNumber);
  }
  const std::int64_t channels = config.rotary_channels();
  if (!(config.rotary_share > 0 && config.rotary_share <= 1) || channels < 2 || channels % 2 != 0) {
    throw Error(Fault::kUsage,
                "--rotary-percent: got {} of heads of {}, wanted above 0, at most 1, and an even "
                "number of channels",
                config.rotary_share, config.head_size);
  }
  if (s.kind == Kind::kNone) return;
  if (!(s.factor >= 1 && s.factor <= kMostNumber)) {
    throw Error(Fault::kUsage, "--rotary-scaling-factor: got {}, wanted at least 1, at most {}",
                s.factor, kMostNumber);
  }
  if (s.original_positions <= 1) {
    throw Error(Fault::kUsage, "--original-max-position-embeddings: got {}, wanted at least 2",
                s.original_positions);
  }
  if (s.kind == Kind::kDynamic && channels <= 2) {
    throw Error(Fault::kUsage,
                "--rotary-scaling-type: dynamic needs more than 2 rotated channels, got {}",
                channels);
  }
  if (s.kind == Kind::kLlama3 && !(s.low > 0 && s.high > s.low)) {
    throw Error(Fault::kUsage,
                "--rotary-scaling-type: llama3 between {} and {} turns, wanted 0 < low < high",
                s.low, s.high);
  }
  for (const auto& [flag, share] :
       {std::pair{"--mscale", s.numerator}, {"--mscale-all-dim", s.denominator}})
    if (!(share >= 0 && share <= kMostNumber))
      throw Error(Fault::kUsage, "{}: got {}, wanted 0 to {}", flag, share, kMostNumber);
  if (s.kind == Kind::kYarn && !(s.slow > 0 && s.fast > s.slow && s.fast <= kMostNumber)) {
    throw Error(Fault::kUsage,
                "--rotary-beta-slow, --rotary-beta-fast: got {} and {}, wanted above 0, and a "
                "larger one, at most {}",
                s.slow, s.fast, kMostNumber);
  }
  check_query_growth(config);
  if (s.kind != Kind::kLongrope) return;
  for (const auto& [flag, factors] : {std::pair{"--rotary-short-factors", &s.short_factors},
                                      {"--rotary-long-factors", &s.long_factors}}) {
    const bool positive = std::all_of(factors->begin(), factors->end(),
                                      [](double f) { return f > 0 && std::isfinite(f); });
    if (static_cast<std::int64_t>(factors->size()) != channels / 2 || !positive) {
      throw Error(Fault::kUsage,
                  "{}: got {} numbers, wanted {} above 0, one for each pair of channels", flag,
                  factors->size(), channels / 2);
    }
  }
}

RotaryOptions RotaryOptions::of(const ModelConfig& config) {
  RotaryOptions options;
  if (config.positions != PositionKind::kRotary) return options;
  options.base = config.rotary_base;
  options.local_base = config.local_rotary_base;
  if (config.rotary_share != family_facts(config.family).rotary_share)
    options.percent = config.rotary_share;
  options.interleaved = config.rotary_pairs;
  options.reversed = config.rotary_reversed;
  if (config.no_rotary_every > 0) options.no_rotary_every = config.no_rotary_every;
  const RotaryScaling& scaling = config.rotary_scaling;
  if (scaling.kind == Kind::kNone) return options;
  options.scaling_type = name_of(scaling.kind);
  options.scaling_factor = scaling.factor;
  if (scaling.kind != Kind::kLinear) options.original_positions = scaling.original_positions;
  if (scaling.kind == Kind::kYarn && scaling.denominator != 0) {
    options.magnitude = scaling.numerator;
    options.magnitude_of_all = scaling.denominator;
  }
  if (scaling.kind == Kind::kYarn) {
    const RotaryScaling usual;
    if (scaling.fast != usual.fast) options.fast = scaling.fast;
    if (scaling.slow != usual.slow) options.slow = scaling.slow;
    if (scaling.query_growth != 0) options.query_growth = scaling.query_growth;
  }
  options.fractional_pairs = scaling.kind == Kind::kYarn && !scaling.whole_pairs;
  options.short_factors = scaling.short_factors;
  options.long_factors = scaling.long_factors;
  return options;
}

}  // namespace piton
