#include "serve/uncached_engine.h"

#include <algorithm>
#include <limits>

namespace piton {

std::int64_t UncachedEngine::submit(DecodingRequest request) {
  check_prompt(model_.config(), request.prompt);
  request.sampling.check(model_.config().vocabulary);
  counts_.prompt_tokens += std::ssize(request.prompt);
  Text text{.request = std::move(request)};
  text.ids = text.request.prompt;
  texts_.emplace(submitted_, std::move(text));
  return submitted_++;
}

DecodingEvent UncachedEngine::next(std::int64_t number, Text& text) {
  const DecodingRequest& request = text.request;
  const auto vocabulary = static_cast<std::size_t>(model_.config().vocabulary);
  const Tensor logits = model_.logits(text.ids);
  const float* row = logits.data<float>() + (text.ids.size() - 1) * vocabulary;
  std::vector<float> last(row, row + vocabulary);
  if (request.constraint) {
    std::vector<bool> allowed(vocabulary);
    request.constraint->allow(allowed);
    for (std::size_t i = 0; i < vocabulary; ++i) {
      if (!allowed[i]) last[i] = -1e30F;
    }
  }
  const auto index = std::ssize(text.ids) + static_cast<std::int64_t>(request.draw << 32);
  DecodingEvent event{.request = number, .token = draw_token(last, request.sampling, index)};
  text.ids.push_back(event.token.id);
  if (request.constraint) request.constraint->advance(event.token.id);
  counts_.computed_tokens += std::ssize(text.ids);
  ++counts_.generated_tokens;
  const auto written = std::ssize(text.ids) - std::ssize(request.prompt);
  const auto& ends = request.ends;
  if (std::find(ends.begin(), ends.end(), event.token.id) != ends.end() ||
      (request.constraint && request.constraint->done())) {
    event.finish = FinishReason::kStop;
  } else if (written >= request.sampling.max_new_tokens ||
             std::ssize(text.ids) >= model_.config().max_positions) {
    event.finish = FinishReason::kLength;
  }
  return event;
}

std::vector<DecodingEvent> UncachedEngine::step() {
  std::vector<DecodingEvent> events;
  for (auto at = texts_.begin(); at != texts_.end();) {
    events.push_back(next(at->first, at->second));
    at = events.back().finish == FinishReason::kNone ? std::next(at) : texts_.erase(at);
  }
  ++counts_.passes;
  return events;
}

DecodingCounts UncachedEngine::counts() const {
  DecodingCounts counts = counts_;
  counts.running = std::ssize(texts_);
  return counts;
}

}  // namespace piton
