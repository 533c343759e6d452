#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/options/option_range.h"

namespace piton {
namespace {

// The largest logit; NaN only if the first one is. Several at a time, which std::max_element() is
// not compiled to.
float largest_logit(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> most;
  most.fill(logits.front());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      most[lane] = logits[i + lane] > most[lane] ? logits[i + lane] : most[lane];
  }
  for (; i < logits.size(); ++i) most[0] = logits[i] > most[0] ? logits[i] : most[0];
  return *std::max_element(most.begin(), most.end());
}

// The ids of the `count` largest logits, the lower id first on ties.
std::vector<std::int32_t> largest(std::span<const float> logits, std::size_t count) {
  if (count == 1) {
    const auto first = std::find(logits.begin(), logits.end(), largest_logit(logits));
    return {first == logits.end() ? 0 : static_cast<std::int32_t>(first - logits.begin())};
  }
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

// log_sum_exp(). Throws Error(kData) where a logit is NaN or infinite.
double checked_sum(std::span<const float> logits) {
  const double sum = log_sum_exp(logits);
  if (!std::isfinite(sum)) refuse_logits();
  return sum;
}

std::vector<LikelyToken> likeliest_of(std::span<const float> logits, std::int64_t count,
                                      double total) {
  std::vector<LikelyToken> tokens;
  for (const std::int32_t id : largest(logits, static_cast<std::size_t>(count)))
    tokens.push_back({id, static_cast<double>(logits[id]) - total});
  return tokens;
}

}  // namespace

void refuse_logits() {
  throw Error(Fault::kData,
              "the model's logits are not finite; are its weights damaged, or too large "
              "for the type it computes in?");
}

double log_sum_exp(std::span<const float> logits) {
  const float largest = largest_logit(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<LikelyToken> likeliest_tokens(std::span<const float> logits, std::int64_t count) {
  return likeliest_of(logits, count, checked_sum(logits));
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

void SamplingOptions::settle() {
  for (const std::string& text : bias_texts) {
    const std::size_t mark = std::min(text.find('='), text.size());
    const char* end = text.data() + text.size();
    std::int32_t id = -1;
    double bias = 0;
    const auto of_id = std::from_chars(text.data(), text.data() + mark, id);
    const bool has_id = of_id.ec == std::errc() && of_id.ptr == text.data() + mark && id >= 0;
    const char* value = std::min(text.data() + mark + 1, end);
    const auto of_bias = std::from_chars(value + (value < end && *value == '+' ? 1 : 0), end, bias);
    if (!has_id || of_bias.ec != std::errc() || of_bias.ptr != end)
      throw Error(Fault::kUsage, "--logit-bias: got \"{}\", wanted ID=BIAS, as in 15=-2.5", text);
    logit_bias[id] = bias;
  }
  if (temperature != 0 || dynatemp_range > 0) return;
  greedy = true;
  temperature = 1;
}

double SamplingOptions::next_most_surprise(double most, double share) const {
  return most - mirostat_rate * (-std::log2(share) - mirostat_surprise);
}

void SamplingOptions::check() const {
  const auto in_range = [](const char* flag, double value, double least, double most,
                           const char* none) {
    if (value >= least && value <= most) return;
    throw Error(Fault::kUsage, "{}: got {}, wanted {} to {} ({}: none)", flag, value, least, most,
                none);
  };
  check_range("--max-new-tokens", max_new_tokens, 1);
  const bool is_zero = temperature == 0 && dynatemp_range > 0;
  if (!(temperature > 0 || is_zero) || !std::isfinite(temperature))
    throw Error(Fault::kUsage,
                "--temperature: got {}, wanted a number above 0 (for the most likely token: "
                "--greedy)",
                temperature);
  in_range("--dynatemp-range", dynatemp_range, 0, kMostTemperatureRange, "0");
  if (!(dynatemp_exponent >= 0 && dynatemp_exponent <= kMostTemperatureRange))
    throw Error(Fault::kUsage, "--dynatemp-exp: got {}, wanted 0 to {}", dynatemp_exponent,
                kMostTemperatureRange);
  check_range("--top-k", top_k, 0);
  if (!(top_p > 0 && top_p <= 1))
    throw Error(Fault::kUsage, "--top-p: got {}, wanted 0 < p <= 1", top_p);
  if (!(min_p >= 0 && min_p <= 1))
    throw Error(Fault::kUsage, "--min-p: got {}, wanted 0 <= p <= 1", min_p);
  if (!(typical_p > 0 && typical_p <= 1))
    throw Error(Fault::kUsage, "--typical-p: got {}, wanted 0 < p <= 1", typical_p);
  in_range("--top-n-sigma", top_n_sigma, 0, kMostPenalty, "0");
  in_range("--xtc-probability", xtc_probability, 0, 1, "0");
  if (!(xtc_threshold > 0 && xtc_threshold <= 1))
    throw Error(Fault::kUsage, "--xtc-threshold: got {}, wanted 0 < p <= 1", xtc_threshold);
  check_mirostat();
  in_range("--dry-multiplier", dry.multiplier, 0, kMostRunPenalty, "0");
  if (!(dry.base >= 1 && dry.base <= kMostRunPenalty))
    throw Error(Fault::kUsage, "--dry-base: got {}, wanted 1 to {}", dry.base, kMostRunPenalty);
  check_range("--dry-allowed-length", dry.allowed_length, 0);
  check_range("--dry-penalty-last-n", dry.last_tokens, -1);
  in_range("--repetition-penalty", repetition_penalty, kLeastRepetitionPenalty,
           kMostRepetitionPenalty, "1");
  in_range("--presence-penalty", presence_penalty, -kMostPenalty, kMostPenalty, "0");
  in_range("--frequency-penalty", frequency_penalty, -kMostPenalty, kMostPenalty, "0");
  check_range("--no-repeat-ngram-size", no_repeat_ngram_size, 0);
  for (const auto& [id, bias] : logit_bias)
    in_range("--logit-bias", bias, -kMostPenalty, kMostPenalty, "0");
  if (log_probabilities) check_range("--logprobs", *log_probabilities, 0);
}

void SamplingOptions::check_mirostat() const {
  if (mirostat != 0 && mirostat != 2)
    throw Error(Fault::kUsage,
                "--mirostat: got {}, wanted 0 (none) or 2 (Mirostat 2.0, which has replaced "
                "version 1)",
                mirostat);
  if (!(mirostat_rate > 0 && mirostat_rate <= 1))
    throw Error(Fault::kUsage, "--mirostat-lr: got {}, wanted 0 < eta <= 1", mirostat_rate);
  if (!(mirostat_surprise >= 0 && mirostat_surprise <= kMostSurprise))
    throw Error(Fault::kUsage, "--mirostat-ent: got {}, wanted 0 to {} bits", mirostat_surprise,
                kMostSurprise);
  if (mirostat == 0) return;
  const auto refuse = [](const char* flag) {
    throw Error(Fault::kUsage, "--mirostat: chooses in place of {}; leave one of them out", flag);
  };
  if (greedy) refuse("--greedy and --temperature 0");
  if (dynatemp_range > 0) refuse("--dynatemp-range");
  if (has_filters())
    refuse("--top-k, --top-p, --min-p, --typical-p, --top-n-sigma and --xtc-probability");
}

void SamplingOptions::check(std::int64_t vocabulary) const {
  check();
  if (top_k > vocabulary)
    throw Error(Fault::kUsage, "--top-k: got {}, wanted 0 to {} (the vocabulary)", top_k,
                vocabulary);
  if (!logit_bias.empty() && logit_bias.rbegin()->first >= vocabulary)
    throw Error(Fault::kUsage, "--logit-bias: got token {}, wanted 0 to {}",
                logit_bias.rbegin()->first, vocabulary - 1);
  if (log_probabilities) check_range("--logprobs", *log_probabilities, 0, vocabulary);
}

GeneratedToken token_of(std::span<const float> logits, const SamplingOptions& options,
                        std::int32_t id) {
  return tokens_of(logits, options, std::span(&id, 1)).front();
}

std::vector<GeneratedToken> tokens_of(std::span<const float> logits, const SamplingOptions& options,
                                      std::span<const std::int32_t> ids) {
  const double total = checked_sum(logits);
  std::vector<LikelyToken> likeliest;
  if (options.log_probabilities.value_or(0) > 0)
    likeliest = likeliest_of(logits, *options.log_probabilities, total);
  std::vector<GeneratedToken> tokens;
  for (const std::int32_t id : ids) {
    tokens.push_back(
        {{id, static_cast<double>(logits[static_cast<std::size_t>(id)]) - total}, likeliest});
  }
  return tokens;
}

}  // namespace piton
