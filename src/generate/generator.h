// Decoding: one token after another, with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/options.h"
#include "generate/inference.h"

namespace piton {

struct SamplingOptions {
  std::int64_t max_new_tokens = 128;
  bool greedy = false;  // the most likely token, the lowest id on ties
  double temperature = 1.0;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1.0;      // 1: all
  std::uint64_t seed = 1234;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"max-new-tokens", "tokens to write at most"}, max_new_tokens);
    v(Option{"greedy", "always the most likely token"}, greedy);
    v(Option{"temperature", "logits are divided by it before sampling (0: --greedy)"}, temperature);
    v(Option{"top-k", "sample among the k most likely tokens (0: all)"}, top_k);
    v(Option{"top-p", "sample among the fewest tokens whose probabilities reach p"}, top_p);
    v(Option{"seed", "of the sampled tokens"}, seed);
  }
  // Throws Error(kUsage) with the flag.
  void check(std::int64_t vocabulary) const;
};

struct GeneratedToken {
  std::int32_t id = 0;
  double log_probability = 0;  // of the model, before temperature and filters
};

// Draws a token from `logits` [vocabulary]: temperature, then top-k, then top-p (which keeps the
// token that crosses p), then Philox number `index` of the seed. Throws nothing; asserts that the
// vocabulary is not empty.
GeneratedToken draw_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t index);

// Continues `prompt` (at least one id) until max_new_tokens, `end` or the model's longest sequence.
// Collective over the model's ranks: all get the same tokens. Calls `each` with every token as soon
// as it is drawn; false ends the text (must be the same on every rank). Throws Error(kUsage) if the
// prompt is empty, has ids outside the vocabulary, or leaves no room.
std::vector<GeneratedToken> generate(Inference& inference, std::span<const std::int32_t> prompt,
                                     const SamplingOptions& options,
                                     std::optional<std::int32_t> end,
                                     const std::function<bool(const GeneratedToken&)>& each);

}  // namespace piton
