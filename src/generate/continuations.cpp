#include "generate/continuations.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "generate/generator.h"

namespace piton {
namespace {

// Requests that read the same tokens: they differ in the last one, or in what is given.
struct OneReading {
  DecodingRequest request;
  std::vector<std::size_t> requests;  // the last token of the k-th is scored at index last[k]
  std::vector<std::size_t> last;
};

std::vector<OneReading> readings_of(std::span<const ContinuationRequest> requests) {
  std::vector<OneReading> readings;
  std::map<std::span<const std::int32_t>, std::size_t,
           decltype([](std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
             return std::ranges::lexicographical_compare(a, b);
           })>
      known;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const ContinuationRequest& one = requests[i];
    PITON_ASSERT(one.given >= 1 && one.given < one.ids.size(), "{} of {} tokens given", one.given,
                 one.ids.size());
    const auto read = std::span(one.ids).first(one.ids.size() - 1);
    const auto [found, is_new] = known.try_emplace(read, readings.size());
    if (is_new) {
      readings.push_back({.request = {.prompt = one.ids,
                                      .sampling = {.max_new_tokens = 0, .log_probabilities = 1},
                                      .scored_from = static_cast<std::int64_t>(one.given)}});
    }
    OneReading& reading = readings[found->second];
    DecodingRequest& request = reading.request;
    request.scored_from = std::min(request.scored_from, static_cast<std::int64_t>(one.given));
    if (!is_new) request.alternatives.push_back(one.ids.back());
    reading.requests.push_back(i);
    reading.last.push_back(request.alternatives.size());  // after the scored tokens before it
  }
  return readings;
}

}  // namespace

std::vector<ContinuationScore> score_continuations(DecodingEngine& engine,
                                                   std::span<const ContinuationRequest> requests) {
  std::vector<OneReading> readings = readings_of(requests);
  std::vector<DecodingRequest> submitted;
  for (OneReading& one : readings) submitted.push_back(one.request);
  const auto scored = score_prompts(engine, std::move(submitted));
  std::vector<ContinuationScore> scores(requests.size());
  for (std::size_t r = 0; r < readings.size(); ++r) {
    const OneReading& reading = readings[r];
    const auto before = static_cast<std::size_t>(std::ssize(reading.request.prompt) - 1 -
                                                 reading.request.scored_from);
    for (std::size_t k = 0; k < reading.requests.size(); ++k) {
      const ContinuationRequest& one = requests[reading.requests[k]];
      ContinuationScore& score = scores[reading.requests[k]];
      score.greedy = true;
      const auto add = [&](const GeneratedToken& token) {
        score.log_likelihood += token.log_probability;
        score.greedy = score.greedy && token.likeliest.front().id == token.id;
      };
      const std::size_t own = before - (one.ids.size() - 1 - one.given);
      for (std::size_t i = own; i < before; ++i) add(scored[r][i]);
      add(scored[r][before + reading.last[k]]);
    }
  }
  return scores;
}

std::vector<std::vector<double>> score_texts(DecodingEngine& engine,
                                             std::span<const std::vector<std::int32_t>> texts) {
  std::vector<DecodingRequest> requests;
  std::vector<std::size_t> of;  // request i is of text of[i]: others have no token to score
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() < 2) continue;
    of.push_back(i);
    requests.push_back({.prompt = texts[i], .sampling = {.max_new_tokens = 0}, .scored_from = 1});
  }
  const auto scored = score_prompts(engine, std::move(requests));
  std::vector<std::vector<double>> likelihoods(texts.size());
  for (std::size_t i = 0; i < of.size(); ++i) {
    for (const GeneratedToken& token : scored[i])
      likelihoods[of[i]].push_back(token.log_probability);
  }
  return likelihoods;
}

std::int64_t distinct_tokens(std::span<const ContinuationRequest> requests) {
  std::vector<std::span<const std::int32_t>> read;
  for (const ContinuationRequest& one : requests)
    read.push_back(std::span(one.ids).first(one.ids.size() - 1));
  std::ranges::sort(read, [](const auto& a, const auto& b) {
    return std::ranges::lexicographical_compare(a, b);
  });
  std::int64_t tokens = 0;
  std::span<const std::int32_t> before;
  for (const auto& ids : read) {
    tokens += ids.end() - std::ranges::mismatch(ids, before).in1;
    before = ids;
  }
  return tokens;
}

}  // namespace piton
