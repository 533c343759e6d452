// How the next token of a text is chosen from the logits of a model.
//
// First the logits change: by biases, by penalties of tokens, by penalties of runs of tokens
// (generate/repeated_runs.h); tokens that would repeat n tokens in a row are left out. Then the
// temperature divides them. Then filters leave some of them: top-n-sigma, top-k, top-p, min-p,
// typical-p, XTC, or Mirostat 2 instead of all of these. Then a number drawn by coordinates (seed,
// draw, index of the token) chooses: generate/token_draws.h does this where the logits are.
// Penalties, filters and their order are those of Transformers, as are n-grams (Paulus et al. 2018,
// arXiv:1705.04304); presence and frequency penalties are those of OpenAI's interface; top-n-sigma,
// XTC, runs, Mirostat 2 and the temperature that follows the entropy are those of llama.cpp, and
// come where it has them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "generate/repeated_runs.h"
#include "model/config.h"

namespace piton {

// Logits change by at most this, so that none of them leaves the range of its type.
inline constexpr double kLeastRepetitionPenalty = 0.01;
inline constexpr double kMostRepetitionPenalty = 100;
inline constexpr double kMostPenalty = 1000;  // presence and frequency, of both signs
inline constexpr double kMostTemperatureRange = 100;
inline constexpr double kMostSurprise = 100;  // bits; a token of a million equal ones has 20

struct SamplingOptions {
  std::int64_t max_new_tokens = 128;
  bool greedy = false;  // the most likely token, the lowest id on ties
  double temperature = 1.0;
  double dynatemp_range = 0;  // 0: the temperature is the same everywhere
  double dynatemp_exponent = 1;
  std::int64_t top_k = 0;      // 0: all
  double top_p = 1.0;          // 1: all
  double min_p = 0;            // 0: all
  double typical_p = 1;        // 1: all
  double top_n_sigma = 0;      // 0: all
  double xtc_probability = 0;  // 0: never
  double xtc_threshold = 0.1;
  std::int64_t mirostat = 0;  // its version: 0 (none) or 2
  double mirostat_rate = 0.1;
  double mirostat_surprise = 5;   // bits
  double repetition_penalty = 1;  // 1: none
  double presence_penalty = 0;
  double frequency_penalty = 0;
  std::int64_t no_repeat_ngram_size = 0;      // 0: any may repeat
  std::map<std::int32_t, double> logit_bias;  // added to the logit of each id
  std::vector<std::string> bias_texts;        // ID=BIAS, which settle() reads
  RunPenalty dry;                             // its breakers: find_breakers()
  std::vector<std::string> dry_breakers;      // texts
  std::uint64_t seed = 1234;
  std::optional<std::int64_t> log_probabilities;  // of how many of the likeliest tokens as well

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"max-new-tokens",
             "largest number of tokens to generate",
             {.aliases = {"max-new-token"}}},
      max_new_tokens);
    v(Option{"greedy", "always take the most likely token"}, greedy);
    v(Option{"temperature", "divisor of the logits before sampling (0: --greedy)"}, temperature);
    v(Option{"dynatemp-range",
             "temperatures from --temperature - X to --temperature + X, the more the flatter the "
             "model's distribution is (0: the same everywhere)",
             {.placeholder = "X"}},
      dynatemp_range);
    v(Option{"dynatemp-exp",
             "exponent of the entropy's share of its largest value, which --dynatemp-range takes "
             "the temperature from"},
      dynatemp_exponent);
    v(Option{"top-k", "sample from the k most likely tokens (0: all)"}, top_k);
    v(Option{"top-p", "sample from the fewest tokens whose probabilities reach p"}, top_p);
    v(Option{"min-p", "sample from tokens at least p times as likely as the most likely one"},
      min_p);
    v(Option{"typical-p",
             "sample from the tokens whose log-probability is nearest to its mean, until their "
             "probabilities reach p (1: all)",
             {.aliases = {"typical"}}},
      typical_p);
    v(Option{"top-n-sigma",
             "sample from tokens whose logit is within N standard deviations of the largest one "
             "(0: all)",
             {.aliases = {"top-nsigma"}, .placeholder = "N"}},
      top_n_sigma);
    v(Option{"xtc-probability",
             "how often the likeliest tokens are left out: of those with --xtc-threshold all but "
             "the last one (0: never)"},
      xtc_probability);
    v(Option{"xtc-threshold", "the probability of tokens that --xtc-probability leaves out"},
      xtc_threshold);
    v(Option{"mirostat",
             "2: Mirostat 2.0 in place of all filters: leave out tokens with too much surprise, so "
             "that its mean gets to --mirostat-ent (0: none)"},
      mirostat);
    v(Option{"mirostat-lr", "how fast --mirostat learns (eta)"}, mirostat_rate);
    v(Option{"mirostat-ent",
             "mean surprise of a token that --mirostat aims at, -log2 of its probability (tau)",
             {.placeholder = "BITS"}},
      mirostat_surprise);
    v(Option{"repetition-penalty",
             "divisor of positive logits, and factor of negative ones, of tokens that are in the "
             "prompt or the text"},
      repetition_penalty);
    v(Option{"presence-penalty", "subtracted from the logits of tokens that were generated"},
      presence_penalty);
    v(Option{"frequency-penalty",
             "subtracted from the logit of a token for each time that it was generated"},
      frequency_penalty);
    v(Option{"no-repeat-ngram-size",
             "no N tokens in a row occur twice in prompt and text (0: they may)",
             {.placeholder = "N"}},
      no_repeat_ngram_size);
    visit_runs(v);
    v(Option{"logit-bias",
             "add BIAS to the logit of token ID, as in 15=-2.5; several with blanks between them",
             {.placeholder = "ID=BIAS"}},
      bias_texts);
    v(Option{"seed", "seed of the sampling"}, seed);
    v(Option{"logprobs",
             "print the log-probability of each token and of the N most likely in its place (0: "
             "its own only)",
             {.placeholder = "N"}},
      log_probabilities);
  }
  template <typename Visitor>
  void visit_runs(Visitor&& v) {
    v(Option{"dry-multiplier",
             "a token that repeats a run of tokens loses X * --dry-base^(length - "
             "--dry-allowed-length) of its logit (0: nothing)",
             {.placeholder = "X"}},
      dry.multiplier);
    v(Option{"dry-base", "base of the penalty of runs"}, dry.base);
    v(Option{"dry-allowed-length", "shorter runs repeat without a penalty"}, dry.allowed_length);
    v(Option{"dry-penalty-last-n",
             "look for runs in the last N tokens (-1: in all)",
             {.placeholder = "N"}},
      dry.last_tokens);
    v(Option{"dry-sequence-breaker",
             "texts that runs do not go over, instead of the end of a line, :, \" and *; several "
             "with blanks between them; none: no breaker",
             {.placeholder = "TEXT"}},
      dry_breakers);
  }
  // A temperature of 0 that follows nothing is the limit of low ones: the most likely token. Throws
  // Error(kUsage) for a text of --logit-bias that cannot be read.
  void settle();
  bool has_filters() const {
    return top_k > 0 || top_p != 1 || min_p != 0 || typical_p != 1 || top_n_sigma != 0 ||
           xtc_probability != 0;
  }
  // Mirostat: the most surprise (mu, in bits) that a token may have, at the beginning of a text and
  // after one that had `share` of the weight that was left.
  double first_most_surprise() const { return 2 * mirostat_surprise; }
  double next_most_surprise(double most, double share) const;
  bool has_penalties() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  // A draw needs the tokens before it.
  bool reads_text() const {
    return has_penalties() || no_repeat_ngram_size > 0 || dry.multiplier > 0;
  }
  // The logits that tokens are drawn from are not the model's.
  bool changes_logits() const { return reads_text() || !logit_bias.empty(); }
  // All that can be wrong whatever the model is. Throws Error(kUsage) with the flag.
  void check() const;
  // The rest too.
  void check(std::int64_t vocabulary) const;

 private:
  void check_mirostat() const;
};

struct LikelyToken {
  std::int32_t id = 0;
  double log_probability = 0;  // of the model, before temperature and filters
};
struct DrawnToken : LikelyToken {
  // Of the weight that temperature and filters left; 1 unless it was drawn with --mirostat.
  double share = 1;
};
struct GeneratedToken : LikelyToken {
  std::vector<LikelyToken> likeliest;  // as many as were asked for, the likeliest first
  double share = 1;                    // as DrawnToken's
};

// Throws Error(kData): logits are not finite.
[[noreturn]] void refuse_logits();

// log(sum(exp(logits))) in fp64.
double log_sum_exp(std::span<const float> logits);
// The `count` likeliest tokens, the lower id first on ties.
std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::int64_t count);

// Throws Error(kUsage) if `prompt` is empty, holds ids outside the vocabulary, or leaves no room.
void check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt);

// Coordinates of a random number in addition to the seed.
struct DrawPlace {
  std::int64_t index = 0;  // of the token among those generated
  std::uint64_t draw = 0;  // samples of one prompt differ in this
};

// A token with its log-probability by the model's own `logits`. Throws Error(kData) if these are
// not finite.
GeneratedToken token_of(std::span<const float> logits, const SamplingOptions& options,
                        std::int32_t id);
// The same for several ids in one place.
std::vector<GeneratedToken> tokens_of(std::span<const float> logits, const SamplingOptions& options,
                                      std::span<const std::int32_t> ids);

}  // namespace piton
