// Decoding: one token after another, with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/options/options.h"
#include "generate/inference.h"

namespace piton {

struct SamplingOptions {
  std::int64_t max_new_tokens = 128;
  bool greedy = false;  // the most likely token, the lowest id on ties
  double temperature = 1.0;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1.0;      // 1: all
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
    v(Option{"top-k", "sample from the k most likely tokens (0: all)"}, top_k);
    v(Option{"top-p", "sample from the fewest tokens whose probabilities reach p"}, top_p);
    v(Option{"seed", "seed of the sampling"}, seed);
    v(Option{"logprobs",
             "print the log-probability of each token and of the N most likely in its place (0: "
             "its own only)",
             {.placeholder = "N"}},
      log_probabilities);
  }
  // A temperature of 0 is the limit of low ones: the most likely token.
  void settle() {
    if (temperature != 0) return;
    greedy = true;
    temperature = 1;
  }
  // Throws Error(kUsage) with the flag.
  void check(std::int64_t vocabulary) const;
};

struct LikelyToken {
  std::int32_t id = 0;
  double log_probability = 0;  // of the model, before temperature and filters
};
struct GeneratedToken : LikelyToken {
  std::vector<LikelyToken> likeliest;  // as many as were asked for, the likeliest first
};

// log(sum(exp(logits))) in fp64.
double log_sum_exp(std::span<const float> logits);
// The `count` likeliest tokens, the lower id first on ties.
std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::int64_t count);

// Throws Error(kUsage) if `prompt` is empty, holds ids outside the vocabulary, or leaves no room.
void check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt);

// Draws a token from `logits` [vocabulary]: temperature, then top-k, then top-p (which keeps the
// token that crosses p), then Philox number `index` of the seed. Throws nothing; asserts that the
// vocabulary is not empty.
GeneratedToken draw_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t index);

// Continues each of `prompts` (at least one id each) until max_new_tokens, `end` or the model's
// longest sequence, all side by side. Each gets the tokens that it gets alone, but where two are so
// near that the order of a sum decides. Collective over the model's ranks: all get the same tokens.
// `each` sees a token as soon as it is drawn, with the index of its prompt; false from it ends that
// text (on every rank alike). Throws Error(kUsage) as check_prompt() does.
std::vector<std::vector<GeneratedToken>> generate_batch(
    Inference& inference, std::span<const std::vector<std::int32_t>> prompts,
    const SamplingOptions& options, std::optional<std::int32_t> end,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each);

// The same of one prompt.
std::vector<GeneratedToken> generate(Inference& inference, std::span<const std::int32_t> prompt,
                                     const SamplingOptions& options,
                                     std::optional<std::int32_t> end,
                                     const std::function<bool(const GeneratedToken&)>& each);

}  // namespace piton
