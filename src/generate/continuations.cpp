#include "generate/continuations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "generate/sampling.h"
#include "model/rotary.h"

namespace piton {
namespace {

// Requests with the same context.
struct SharedContext {
  std::vector<std::size_t> requests;
};

// A text that is read, for all requests that begin with it and have one token more.
struct Reading {
  std::span<const std::int32_t> ids;
  std::size_t first_row = 0;    // of those that need logits; they end with the text
  std::size_t first_logit = 0;  // index of that row's logits
};

ContinuationScore score_of(const ContinuationRequest& request, std::span<const float> logits,
                           std::size_t vocabulary) {
  ContinuationScore score{.greedy = true};
  for (std::size_t i = 0; request.given + i < request.ids.size(); ++i) {
    const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
    const double total = log_sum_exp(row);
    if (!std::isfinite(total)) {
      throw Error(Fault::kData,
                  "score: the model's logits are not finite; are its weights damaged, or too large "
                  "for the type it computes in?");
    }
    const std::int32_t id = request.ids[request.given + i];
    score.log_likelihood += static_cast<double>(row[static_cast<std::size_t>(id)]) - total;
    score.greedy = score.greedy && std::max_element(row.begin(), row.end()) - row.begin() == id;
  }
  return score;
}

class Scorer {
 public:
  Scorer(Inference& inference, std::span<const ContinuationRequest> requests)
      : inference_(inference), requests_(requests), scores_(requests.size()) {}

  std::vector<ContinuationScore> run() {
    std::vector<std::size_t> rest;
    for (const SharedContext& context : contexts()) {
      if (is_cheaper_shared(context)) {
        read_shared(context);
      } else {
        rest.insert(rest.end(), context.requests.begin(), context.requests.end());
      }
    }
    if (rest.empty()) return std::move(scores_);
    if (!angles_change()) {
      read_whole(rest);
    } else {
      for (const std::size_t one : rest) read_whole({one});
    }
    return std::move(scores_);
  }

 private:
  std::vector<SharedContext> contexts() const {
    std::vector<SharedContext> contexts;
    std::map<std::vector<std::int32_t>, std::size_t> known;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const ContinuationRequest& request = requests_[i];
      PITON_ASSERT(request.given >= 1 && request.given < request.ids.size(),
                   "{} of {} tokens given", request.given, request.ids.size());
      const auto end = request.ids.begin() + static_cast<std::ptrdiff_t>(request.given);
      const auto [found, is_new] = known.try_emplace({request.ids.begin(), end}, contexts.size());
      if (is_new) contexts.emplace_back();
      contexts[found->second].requests.push_back(i);
    }
    return contexts;
  }

  // Whether all angles depend on the length of a text, so that texts of other lengths must not be
  // read together with it.
  bool angles_change() const {
    std::size_t shortest = requests_[0].ids.size();
    std::size_t longest = shortest;
    for (const ContinuationRequest& request : requests_) {
      shortest = std::min({shortest, request.ids.size(), request.given});
      longest = std::max(longest, request.ids.size());
    }
    const RotaryScaling& scaling = inference_.config().rotary_scaling;
    return rotary_length(scaling, static_cast<std::int64_t>(shortest)) !=
           rotary_length(scaling, static_cast<std::int64_t>(longest));
  }

  std::size_t longest_continuation(const SharedContext& context) const {
    std::size_t longest = 0;
    for (const std::size_t i : context.requests)
      longest = std::max(longest, requests_[i].ids.size() - requests_[i].given);
    return longest;
  }

  // Several continuations of more than one token. A context shorter than them saves nothing: two
  // small passes cost more than one of twice the rows.
  bool is_cheaper_shared(const SharedContext& context) const {
    const std::size_t longest = longest_continuation(context);
    return context.requests.size() > 1 && longest > 1 &&
           requests_[context.requests[0]].given > 2 * longest && !angles_change();
  }

  // Reads the context into a cache, and then all continuations after copies of it.
  void read_shared(const SharedContext& context) {
    const ContinuationRequest& first = requests_[context.requests[0]];
    KvCache cache = inference_.make_cache();
    const std::vector<TextTokens> once{
        {.text = cache.add_text(), .ids = std::span(first.ids).first(first.given)}};
    const std::vector<float> at_context =
        inference_.whole_vocabulary(inference_.logits(once, Inference::last_rows(once), cache));
    // The last token of a request is not read.
    std::vector<TextTokens> texts;
    std::int32_t rows = 0;
    for (const std::size_t i : context.requests) {
      const ContinuationRequest& request = requests_[i];
      const std::size_t count = request.ids.size() - request.given - 1;
      if (count == 0) continue;
      texts.push_back({.text = cache.fork(once.front().text),
                       .ids = std::span(request.ids).subspan(request.given, count)});
      rows += static_cast<std::int32_t>(count);
    }
    std::vector<std::int32_t> all(static_cast<std::size_t>(rows));
    std::iota(all.begin(), all.end(), 0);
    const std::vector<float> after =
        inference_.whole_vocabulary(inference_.logits(texts, all, cache));
    if (after.empty()) return;
    const std::size_t vocabulary = vocabulary_size();
    auto next = after.begin();
    for (const std::size_t i : context.requests) {
      const ContinuationRequest& request = requests_[i];
      const std::size_t count = request.ids.size() - request.given - 1;
      std::vector<float> logits = at_context;
      const auto end = next + static_cast<std::ptrdiff_t>(count * vocabulary);
      logits.insert(logits.end(), next, end);
      next = end;
      scores_[i] = score_of(request, logits, vocabulary);
    }
  }

  // Reads all texts in one pass, padded to the longest one.
  void read_whole(const std::vector<std::size_t>& some) {
    std::vector<Reading> texts;
    std::vector<std::size_t> text_of;
    std::map<std::vector<std::int32_t>, std::size_t> known;
    std::size_t longest = 0;
    for (const std::size_t i : some) {
      const ContinuationRequest& request = requests_[i];
      const auto [found, is_new] =
          known.try_emplace({request.ids.begin(), request.ids.end() - 1}, texts.size());
      if (is_new) {
        texts.push_back({.ids = std::span(request.ids).first(request.ids.size() - 1),
                         .first_row = request.given - 1});
      }
      Reading& reading = texts[found->second];
      reading.first_row = std::min(reading.first_row, request.given - 1);
      longest = std::max(longest, reading.ids.size());
      text_of.push_back(found->second);
    }
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> rows;
    for (std::size_t text = 0; text < texts.size(); ++text) {
      Reading& reading = texts[text];
      reading.first_logit = rows.size();
      for (std::size_t row = reading.first_row; row < reading.ids.size(); ++row)
        rows.push_back(static_cast<std::int32_t>(text * longest + row));
      ids.insert(ids.end(), reading.ids.begin(), reading.ids.end());
      ids.resize((text + 1) * longest, reading.ids.front());
    }
    const std::vector<float> logits =
        inference_.whole_vocabulary(inference_.logits(ids, std::ssize(texts), rows));
    if (logits.empty()) return;
    const std::size_t vocabulary = vocabulary_size();
    for (std::size_t k = 0; k < some.size(); ++k) {
      const ContinuationRequest& request = requests_[some[k]];
      const Reading& reading = texts[text_of[k]];
      const std::size_t first = reading.first_logit + (request.given - 1 - reading.first_row);
      scores_[some[k]] =
          score_of(request, std::span(logits).subspan(first * vocabulary), vocabulary);
    }
  }

  std::size_t vocabulary_size() const {
    return static_cast<std::size_t>(inference_.config().vocabulary);
  }

  Inference& inference_;
  std::span<const ContinuationRequest> requests_;
  std::vector<ContinuationScore> scores_;  // zeros where this rank has no logits
};

}  // namespace

std::vector<ContinuationScore> score_continuations(Inference& inference,
                                                   std::span<const ContinuationRequest> requests) {
  if (requests.empty()) return {};
  std::vector<ContinuationScore> scores = Scorer(inference, requests).run();
  const std::string bytes = inference.from_last_stage(
      {reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof(ContinuationScore)});
  PITON_ASSERT(bytes.size() == scores.size() * sizeof(ContinuationScore));
  std::memcpy(scores.data(), bytes.data(), bytes.size());
  return scores;
}

}  // namespace piton
