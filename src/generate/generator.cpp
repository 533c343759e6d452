#include "generate/generator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/options/option_range.h"
#include "base/random/philox.h"

namespace piton {
namespace {

// In [0, 1), 53 bits of Philox word pair `index`.
double uniform(std::uint64_t seed, std::int64_t index) {
  const auto low = static_cast<std::uint32_t>(index);
  const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(index) >> 32);
  const PhiloxBlock block = philox(site_key(seed, "generate"), {low, high, 0, 2});
  const std::uint64_t bits = (std::uint64_t{block[0]} << 32 | block[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The ids of the `count` largest logits, the lower id first on ties.
std::vector<std::int32_t> largest(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    likelier);
  order.resize(count);
  return order;
}

// Throws Error(kData) where a logit is NaN or infinite, which no choice can be made among.
double checked_sum(std::span<const float> logits) {
  const double sum = log_sum_exp(logits);
  if (std::isfinite(sum)) return sum;
  throw Error(Fault::kData,
              "generate: the model's logits are not finite; are its weights damaged, or too large "
              "for the type it computes in?");
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::int64_t count) {
  const double total = checked_sum(logits);
  std::vector<LikelyToken> tokens;
  for (const std::int32_t id : largest(logits, static_cast<std::size_t>(count))) {
    tokens.push_back({id, static_cast<double>(logits[id]) - total});
  }
  return tokens;
}

void check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length == 0)
    throw Error(Fault::kUsage, "generate: the prompt is empty; wanted at least one token");
  if (length >= config.max_positions) {
    throw Error(Fault::kUsage,
                "generate: the prompt has {} tokens and the model takes {}; shorten the prompt",
                length, config.max_positions);
  }
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= config.vocabulary) {
      throw Error(Fault::kUsage, "generate: the prompt holds id {}, wanted 0 to {}", id,
                  config.vocabulary - 1);
    }
  }
}

void SamplingOptions::check(std::int64_t vocabulary) const {
  if (max_new_tokens < 1)
    throw Error(Fault::kUsage, "--max-new-tokens: got {}, wanted 1 or more", max_new_tokens);
  if (!(temperature > 0))
    throw Error(Fault::kUsage,
                "--temperature: got {}, wanted more than 0 (for the most likely token: --greedy)",
                temperature);
  if (top_k < 0 || top_k > vocabulary)
    throw Error(Fault::kUsage, "--top-k: got {}, wanted 0 to {} (the vocabulary)", top_k,
                vocabulary);
  if (!(top_p > 0 && top_p <= 1))
    throw Error(Fault::kUsage, "--top-p: got {}, wanted 0 < p <= 1", top_p);
  if (log_probabilities) check_range("--logprobs", *log_probabilities, 0, vocabulary);
}

GeneratedToken draw_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t index) {
  PITON_ASSERT(!logits.empty());
  const double total = checked_sum(logits);
  const auto result = [&](std::int64_t id) {
    GeneratedToken token{{static_cast<std::int32_t>(id), static_cast<double>(logits[id]) - total},
                         {}};
    token.likeliest = likeliest_tokens(logits, options.log_probabilities.value_or(0));
    return token;
  };
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (options.greedy || options.top_k == 1) return result(best);

  std::size_t kept = options.top_k > 0 ? static_cast<std::size_t>(options.top_k) : logits.size();
  const std::vector<std::int32_t> order = largest(logits, kept);
  std::vector<double> weights(kept);
  for (std::size_t i = 0; i < kept; ++i) {
    weights[i] =
        std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / options.temperature);
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double reached = 0;
    std::size_t count = 0;
    while (count < kept && reached < options.top_p * sum) reached += weights[count++];
    kept = count;
    sum = reached;
  }
  double mark = uniform(options.seed, index) * sum;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    mark -= weights[i];
    if (mark < 0) return result(order[i]);
  }
  return result(order[kept - 1]);
}

namespace {

// Texts that grow side by side, a sample of the cache for each.
class Batch {
 public:
  Batch(Inference& inference, std::span<const std::vector<std::int32_t>> prompts,
        const SamplingOptions& options)
      : inference_(inference),
        prompts_(prompts),
        options_(options),
        texts_(prompts.size()),
        over_(prompts.size(), false),
        cache_(inference.make_cache(std::ssize(prompts), room())) {}

  std::vector<std::vector<GeneratedToken>> run(
      std::optional<std::int32_t> end,
      const std::function<bool(std::size_t, const GeneratedToken&)>& each) {
    std::vector<float> logits = read_texts();
    while (true) {
      const std::vector<GeneratedToken> drawn = agreed_tokens(logits);
      bool continues = false;
      for (std::size_t i = 0; i < prompts_.size(); ++i) {
        if (over_[i]) continue;
        texts_[i].push_back(drawn[i]);
        over_[i] = !each(i, drawn[i]) || (end && drawn[i].id == *end) ||
                   std::ssize(texts_[i]) == most_tokens(i);
        continues = continues || !over_[i];
      }
      if (!continues) return std::move(texts_);
      logits = read_tokens();
    }
  }

 private:
  std::int64_t most_tokens(std::size_t i) const {
    return std::min(inference_.config().max_positions - std::ssize(prompts_[i]),
                    options_.max_new_tokens);
  }
  // The longest text, its prompt included.
  std::int64_t room() const {
    std::int64_t longest = 0;
    std::int64_t steps = 0;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      longest = std::max(longest, std::ssize(prompts_[i]));
      steps = std::max(steps, most_tokens(i));
    }
    return std::min(inference_.config().max_positions, longest + steps);
  }

  // Reads all texts from their beginning: the prompts, and what has been drawn. They are padded to
  // the longest one; the cache then forgets the padding.
  std::vector<float> read_texts() {
    std::vector<std::vector<std::int32_t>> texts(prompts_.begin(), prompts_.end());
    std::size_t longest = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      for (const GeneratedToken& token : texts_[i]) texts[i].push_back(token.id);
      longest = std::max(longest, texts[i].size());
    }
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> last;
    for (const auto& text : texts) {
      ids.insert(ids.end(), text.begin(), text.end());
      ids.resize(ids.size() + longest - text.size(), text.front());
      last.push_back(static_cast<std::int32_t>(text.size()) - 1);
    }
    cache_.truncate(0);
    std::vector<float> logits =
        inference_.whole_vocabulary(inference_.logits_at(ids, last, cache_));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      cache_.truncate(static_cast<std::int64_t>(i), std::ssize(texts[i]));
    }
    return logits;
  }

  // A text that is over repeats its first place, whose logits nobody looks at.
  std::vector<float> read_tokens() {
    const std::int64_t length = cache_.length();
    if (changes_all_angles(inference_.config().rotary_scaling, length, length + 1))
      return read_texts();
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      if (over_[i]) cache_.truncate(static_cast<std::int64_t>(i), 0);
      ids.push_back(texts_[i].back().id);
    }
    return inference_.whole_vocabulary(
        inference_.logits(ids, std::ssize(prompts_), Inference::Rows::kLastOfEachSample, &cache_));
  }

  // Only the last stage draws; all ranks continue with its tokens.
  std::vector<GeneratedToken> agreed_tokens(const std::vector<float>& logits) {
    const auto vocabulary = static_cast<std::size_t>(inference_.config().vocabulary);
    const auto others = static_cast<std::size_t>(options_.log_probabilities.value_or(0));
    std::vector<LikelyToken> all;
    for (std::size_t i = 0; i < prompts_.size() && !logits.empty(); ++i) {
      GeneratedToken token;
      token.likeliest.resize(others);
      if (!over_[i]) {
        token = draw_token(std::span(logits).subspan(i * vocabulary, vocabulary), options_,
                           std::ssize(texts_[i]));
      }
      all.push_back(token);
      all.insert(all.end(), token.likeliest.begin(), token.likeliest.end());
    }
    const std::string bytes = inference_.from_last_stage(
        {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(LikelyToken)});
    all.resize(bytes.size() / sizeof(LikelyToken));
    std::memcpy(all.data(), bytes.data(), bytes.size());
    std::vector<GeneratedToken> tokens;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      const LikelyToken* const first = all.data() + i * (1 + others);
      tokens.push_back({*first, {first + 1, first + 1 + others}});
    }
    return tokens;
  }

  Inference& inference_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const SamplingOptions& options_;
  std::vector<std::vector<GeneratedToken>> texts_;
  std::vector<bool> over_;
  KvCache cache_;
};

// Whether all angles change while one of the texts grows. Then each text is alone in its cache, so
// that it has its own and not those of the longest.
bool angles_change(const ModelConfig& config, std::span<const std::vector<std::int32_t>> prompts,
                   std::int64_t max_new_tokens) {
  std::int64_t shortest = config.max_positions;
  std::int64_t longest = 0;
  for (const auto& prompt : prompts) {
    shortest = std::min<std::int64_t>(shortest, std::ssize(prompt));
    longest = std::max<std::int64_t>(longest, std::ssize(prompt));
  }
  const std::int64_t most = std::min(config.max_positions - longest, max_new_tokens) + longest;
  return changes_all_angles(config.rotary_scaling, shortest, most);
}

}  // namespace

std::vector<std::vector<GeneratedToken>> generate_batch(
    Inference& inference, std::span<const std::vector<std::int32_t>> prompts,
    const SamplingOptions& options, std::optional<std::int32_t> end,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each) {
  options.check(inference.config().vocabulary);
  for (const auto& prompt : prompts) check_prompt(inference.config(), prompt);
  if (prompts.empty()) return {};
  if (!angles_change(inference.config(), prompts, options.max_new_tokens))
    return Batch(inference, prompts, options).run(end, each);
  std::vector<std::vector<GeneratedToken>> texts;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto each_of_it = [&](std::size_t /*alone*/, const GeneratedToken& token) {
      return each(i, token);
    };
    texts.push_back(Batch(inference, prompts.subspan(i, 1), options).run(end, each_of_it).front());
  }
  return texts;
}

std::vector<GeneratedToken> generate(Inference& inference, std::span<const std::int32_t> prompt,
                                     const SamplingOptions& options,
                                     std::optional<std::int32_t> end,
                                     const std::function<bool(const GeneratedToken&)>& each) {
  const std::vector<std::vector<std::int32_t>> one = {{prompt.begin(), prompt.end()}};
  return generate_batch(inference, one, options, end,
                        [&](std::size_t, const GeneratedToken& token) { return each(token); })
      .front();
}

}  // namespace piton
