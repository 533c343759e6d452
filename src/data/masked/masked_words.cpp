#include "data/masked/masked_words.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kBertNgram = 3;
constexpr std::int64_t kT5Ngram = 10;
constexpr double kGeometric = 0.2;

// The words of a text: word i has the places [starts[i], starts[i + 1]) of `places`.
struct WordPlaces {
  std::vector<std::int32_t> places;
  std::vector<std::size_t> starts;

  std::size_t size() const { return starts.size() - 1; }
  // Places of `n` words from `first` on, or of those that there are.
  std::span<const std::int32_t> ngram(std::size_t first, std::int64_t n) const {
    const std::size_t end = std::min(first + static_cast<std::size_t>(n), size());
    return std::span(places).subspan(starts[first], starts[end] - starts[first]);
  }
};

WordPlaces words_of(std::span<const std::int32_t> ids, const MaskedVocabulary& vocabulary) {
  WordPlaces words;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int32_t id = ids[i];
    if (id < 0 || static_cast<std::size_t>(id) >= vocabulary.continues.size()) {
      throw Error(Fault::kData,
                  "data: a sentence holds id {}, and the tokenizer has {}; was the corpus made "
                  "with another one?",
                  id, vocabulary.continues.size());
    }
    if (id == vocabulary.cls || id == vocabulary.sep) continue;
    const bool continues = vocabulary.continues[static_cast<std::size_t>(id)];
    if (!continues || words.starts.empty()) words.starts.push_back(words.places.size());
    words.places.push_back(static_cast<std::int32_t>(i));
  }
  words.starts.push_back(words.places.size());
  return words;
}

// numpy.random.RandomState.choice([1, 2, 3], p=[1, 1/2, 1/3] / their sum).
std::int64_t draw_short_ngram(NumpyRandom& random) {
  std::array<double, kBertNgram> p;
  for (std::int64_t n = 1; n <= kBertNgram; ++n)
    p[static_cast<std::size_t>(n - 1)] = 1.0 / static_cast<double>(n);
  for (int twice = 0; twice < 2; ++twice) {  // Megatron divides by the sum once for all, and here
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& one : p) one /= sum;
  }
  std::partial_sum(p.begin(), p.end(), p.begin());
  for (double& one : p) one /= p.back();
  const double drawn = random.uniform();
  return std::upper_bound(p.begin(), p.end(), drawn) - p.begin() + 1;
}

std::int64_t draw_ngram(MaskedTask task, NumpyRandom& random) {
  if (task == MaskedTask::kBert) return draw_short_ngram(random);
  return std::clamp(random.geometric(kGeometric), std::int64_t{1}, kT5Ngram);
}

std::int32_t replaced(std::int32_t id, const MaskedVocabulary& vocabulary, NumpyRandom& random) {
  if (random.uniform() < 0.8) return vocabulary.mask;
  if (random.uniform() < 0.5) return id;
  return vocabulary.ids[random.interval(vocabulary.ids.size() - 1)];
}

}  // namespace

MaskedText mask_words(std::span<const std::int32_t> ids, std::int32_t target,
                      const MaskedVocabulary& vocabulary, const MaskingRules& rules,
                      NumpyRandom& random) {
  const WordPlaces words = words_of(ids, vocabulary);
  const double most =
      std::min(rules.probability * static_cast<double>(target),
               std::max(1.0, std::nearbyint(static_cast<double>(ids.size()) * rules.probability)));
  std::vector<std::size_t> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(std::span(order));

  MaskedText text;
  text.ids.assign(ids.begin(), ids.end());
  std::vector<bool> is_masked(ids.size(), false);
  std::size_t masked = 0;
  const auto fits = [&](std::span<const std::int32_t> places) {
    return most >= static_cast<double>(masked + places.size());
  };
  for (const std::size_t first : order) {
    if (static_cast<double>(masked) >= most) break;
    std::int64_t n = draw_ngram(rules.task, random);
    while (n > 1 && !fits(words.ngram(first, n))) --n;
    const std::span<const std::int32_t> places = words.ngram(first, n);
    if (!fits(places)) continue;
    const auto is_taken = [&](std::int32_t place) {
      return is_masked[static_cast<std::size_t>(place)];
    };
    if (std::any_of(places.begin(), places.end(), is_taken)) continue;
    for (const std::int32_t place : places) {
      const auto at = static_cast<std::size_t>(place);
      is_masked[at] = true;
      if (rules.task == MaskedTask::kBert) text.ids[at] = replaced(ids[at], vocabulary, random);
    }
    masked += places.size();
    text.spans.emplace_back(places.begin(), places.end());
  }
  std::sort(text.spans.begin(), text.spans.end());
  return text;
}

}  // namespace piton
