// Angles of rotary positions (kernels/rotary.h), optionally scaled for sequences longer than those
// of the first training.
//
// Of c rotated channels, pair i < c/2 is rotated by position * f_i with f_i = base^(-2i/c). With a
// factor F, N original positions and a sequence of S tokens, a scaling replaces f_i by:
//
//   linear    f_i / F
//             (Chen et al. 2023, arXiv:2306.15595)
//   dynamic   ("NTK") if S > N, f_i with the base multiplied by (F S / N - (F - 1))^(c/(c-2))
//   llama3    f_i / F where the wavelength 2 pi / f_i is above N / low, f_i where it is below
//             N / high, and between them a blend, linear in N f_i / 2 pi
//             (Grattafiori et al. 2024, arXiv:2407.21783)
//   yarn      f_i where a pair makes at least `fast` turns in N positions, f_i / F where it makes
//             at most `slow`, and between them a blend, linear in i; tables times 0.1 ln F + 1
//             (Peng et al. 2023, arXiv:2309.00071)
//   longrope  f_i / long_i if S > N, else f_i / short_i; tables times sqrt(1 + ln F / ln N)
//             (Ding et al. 2024, arXiv:2402.13753)
//
// Values equal those of ROPE_INIT_FUNCTIONS in Transformers (tests/golden/rotary.jsonl).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "tensor/tensor.h"

namespace piton {

struct ModelConfig;

struct RotaryScaling {
  enum class Kind : std::uint8_t { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongrope };

  Kind kind = Kind::kNone;
  double factor = 1;                    // F
  std::int64_t original_positions = 0;  // N
  double low = 1;                       // llama3
  double high = 4;
  double fast = 32;  // yarn
  double slow = 1;
  bool whole_pairs = true;  // yarn: the ends of the blend are rounded outward to whole pairs
  double numerator =
      0;  // yarn: with both, tables times (0.1 numerator ln F + 1) / (0.1 denominator ln F + 1)
  double denominator = 0;
  std::optional<double> magnitude;  // yarn, longrope: table factor, replaces the formula
  double query_growth =
      0;  // yarn: b; queries times 1 + b ln(1 + floor(position / N)) (Ministral 3)
  std::vector<double> short_factors;  // longrope: [c/2]
  std::vector<double> long_factors;   // the same

  bool operator==(const RotaryScaling&) const = default;
};

// A number for the dependence on the length: sequences with equal numbers have the same angles.
std::int64_t rotary_length(const RotaryScaling& scaling, std::int64_t sequence);

// Whether angles depend on the length of the sequence at all: dynamic and longrope.
bool depends_on_length(const RotaryScaling& scaling);

// Whether the angles of all tokens change when a text grows from `before` to `after` tokens, so
// that it has to be read again: longrope at N. Under dynamic scaling a token keeps the angles of
// the text that it ended, as in Transformers.
bool changes_all_angles(const RotaryScaling& scaling, std::int64_t before, std::int64_t after);

// The scaled f_i, [channels / 2], of `channels` rotated channels for sequences of `sequence`
// tokens.
std::vector<double> rotary_frequencies(double base, std::int64_t channels,
                                       const RotaryScaling& scaling, std::int64_t sequence);

// The factor of the tables of cosine and sine.
double rotary_magnitude(const RotaryScaling& scaling);

// The factor of queries of a token at `position`.
double rotary_query_factor(const RotaryScaling& scaling, std::int64_t position);

// Of latent attention: what its scores are multiplied with, in addition to 1 / sqrt(d): under yarn
// with a denominator, as Transformers and Megatron have it, the square of (0.1 denominator ln F +
// 1).
double rotary_score_factor(const RotaryScaling& scaling);

// Base and scaling of the angles of some layers.
struct RotaryAngles {
  double base = 0;
  RotaryScaling scaling;
  std::int64_t sequence = 1;  // tokens of the sequences, for scalings that depend on it
  bool of_queries = false;    // with their factor
};

// Rows of the tables of a model. Computed in double and rounded once.
class RotaryRows {
 public:
  // `config` outlives it.
  RotaryRows(const ModelConfig& config, const RotaryAngles& angles, std::int64_t rows);
  // Gives row `row` the angles of a position in a sequence of so many tokens.
  void fill(std::int64_t row, std::int64_t position, std::int64_t sequence);

 private:
  const ModelConfig& config_;
  RotaryAngles angles_;
  std::int64_t half_;
  double magnitude_;
  std::int64_t length_ = -1;
  std::vector<double> frequencies_;  // of sequences with rotary_length() length_

 public:
  const Tensor cosine;  // fp32 (fp64) [rows, rotated channels / 2]
  const Tensor sine;
};

// Options of rotary positions, with Megatron's flags and the names in Hugging Face's rope_scaling.
struct RotaryOptions {
  std::optional<double> base, local_base, percent, scaling_factor, interpolation_factor;
  std::optional<double> magnitude, magnitude_of_all, fast, slow, query_growth;
  std::optional<std::int64_t> original_positions, no_rotary_every;
  std::optional<std::string> scaling_type, rope_type;
  std::vector<double> short_factors, long_factors;
  bool interleaved = false;
  bool reversed = false;
  bool use_rope_scaling = false;
  bool fractional_pairs = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    const OptionRules same{.resume = Resume::kMustMatch};
    v(Option{"rotary-base", "base of the rotary angles; without effect on other positions", same},
      base);
    v(Option{"rotary-base-local",
             "base of the rotary angles in layers with a window (default: --rotary-base)", same},
      local_base);
    v(Option{"rotary-percent", "fraction of each head's channels that rotary positions rotate",
             same},
      percent);
    v(Option{"rotary-interleaved", "rotate channels 2i and 2i + 1 together, not i and i + d/2",
             same},
      interleaved);
    v(Option{"rotary-reversed", "rotate by the opposite angles (nanochat)", same}, reversed);
    v(Option{"no-rope-freq", "N: layers N, 2 N, ... have no positions (SmolLM3; default: all have)",
             same},
      no_rotary_every);
    v(Option{"rotary-scaling-type",
             "method that stretches rotary angles for longer sequences",
             {.resume = Resume::kMustMatch,
              .choices = {"none", "linear", "dynamic", "llama3", "yarn", "longrope"}}},
      scaling_type);
    v(Option{"rope-type",
             "yarn: same as --rotary-scaling-type yarn, as Megatron has it for "
             "--multi-latent-attention; rope: no such scaling",
             {.resume = Resume::kMustMatch, .choices = {"rope", "yarn"}}},
      rope_type);
    v(Option{"rotary-scaling-factor",
             "factor of --rotary-scaling-type (default: llama3 8, others: longest sequence / "
             "original)",
             {.aliases = {"rope-scaling-factor"}, .resume = Resume::kMustMatch}},
      scaling_factor);
    v(Option{"original-max-position-embeddings",
             "longest sequence before stretching (default: llama3 8192, yarn with "
             "--multi-latent-attention 4096, others: the longest sequence)",
             {.aliases = {"rope-scaling-original-max-position-embeddings"},
              .resume = Resume::kMustMatch}},
      original_positions);
    v(Option{"mscale",
             "yarn: with --mscale-all-dim, tables of angles times (0.1 a ln F + 1) / (0.1 b ln F + "
             "1) for these a, b and the factor F (default: 0.1 ln F + 1)",
             {.aliases = {"rope-scaling-mscale"}, .resume = Resume::kMustMatch}},
      magnitude);
    v(Option{"mscale-all-dim",
             "yarn: b of --mscale; with --multi-latent-attention, scores times (0.1 b ln F + 1)^2",
             {.aliases = {"rope-scaling-mscale-all-dim"}, .resume = Resume::kMustMatch}},
      magnitude_of_all);
    v(Option{"rotary-query-growth",
             "yarn: b of a factor of queries, 1 + b ln(1 + floor(position / original length)) "
             "(Ministral 3; default: 0)",
             same},
      query_growth);
    v(Option{"rotary-beta-fast",
             "yarn: pairs of channels that make at least this number of turns in the original "
             "length are not stretched (default: 32)",
             {.aliases = {"rope-scaling-beta-fast", "beta-fast"}, .resume = Resume::kMustMatch}},
      fast);
    v(Option{"rotary-beta-slow",
             "yarn: those that make at most this number of turns are stretched by the whole factor "
             "(default: 1)",
             {.aliases = {"rope-scaling-beta-slow", "beta-slow"}, .resume = Resume::kMustMatch}},
      slow);
    v(Option{"rotary-fractional-pairs",
             "yarn: the blend begins and ends between pairs of channels; without it at whole ones "
             "(gpt-oss)",
             same},
      fractional_pairs);
    v(Option{"rotary-seq-len-interpolation-factor",
             "same as --rotary-scaling-type linear with this factor", same},
      interpolation_factor);
    v(Option{"use-rope-scaling", "same as --rotary-scaling-type llama3", same}, use_rope_scaling);
    v(Option{"rotary-short-factors",
             "longrope: divisors of the angles for sequences up to the original length", same},
      short_factors);
    v(Option{"rotary-long-factors", "longrope: divisors of the angles for longer sequences", same},
      long_factors);
  }

  // Call it after positions, heads and the longest sequence are set. Throws Error(kUsage) that
  // names the flag.
  void apply(ModelConfig& config) const;
  // The options whose apply() gives the values of `config`.
  static RotaryOptions of(const ModelConfig& config);
};

// Throws Error(kUsage) that names the flag if a rotary field of the config is invalid.
void check_rotary(const ModelConfig& config);

}  // namespace piton
