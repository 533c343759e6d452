#include "generate/generator.h"

#include "base/error.h"

namespace piton {
namespace {

// Ends the requests that are left when a call of the user throws.
class Submitted {
 public:
  explicit Submitted(DecodingEngine& engine) : engine_(engine) {}
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;
  ~Submitted() {
    for (const std::int64_t request : numbers) engine_.cancel(request);
  }

 private:
  DecodingEngine& engine_;

 public:
  std::vector<std::int64_t> numbers;  // consecutive
};

}  // namespace

std::vector<std::vector<GeneratedToken>> generate_batch(
    DecodingEngine& engine, const PromptBatch& prompts, const SamplingOptions& options,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each) {
  PITON_ASSERT(engine.idle(), "an engine with other requests");
  PITON_ASSERT(prompts.draws.empty() || prompts.draws.size() == prompts.ids.size(),
               "{} draws of {} prompts", prompts.draws.size(), prompts.ids.size());
  Submitted submitted(engine);
  for (std::size_t i = 0; i < prompts.ids.size(); ++i) {
    submitted.numbers.push_back(
        engine.submit({.prompt = prompts.ids[i],
                       .sampling = options,
                       .ends = prompts.ends,
                       .draw = prompts.draws.empty() ? 0 : prompts.draws[i],
                       .constraint = prompts.constraints.empty() ? nullptr : prompts.constraints[i],
                       .alternatives = {},
                       .adapter = prompts.adapters.empty() ? std::nullopt : prompts.adapters[i]}));
  }
  std::vector<std::vector<GeneratedToken>> texts(prompts.ids.size());
  std::vector<bool> ended(texts.size());
  while (!engine.idle()) {
    for (DecodingEvent& event : engine.step()) {
      const auto i = static_cast<std::size_t>(event.request - submitted.numbers.front());
      // A pass may give a text several tokens, and a constraint none.
      if (ended[i] || event.token.id < 0) continue;
      texts[i].push_back(std::move(event.token));
      if (each(i, texts[i].back())) continue;
      ended[i] = true;
      engine.cancel(event.request);
    }
  }
  return texts;
}

std::vector<std::vector<GeneratedToken>> score_prompts(DecodingEngine& engine,
                                                       std::vector<DecodingRequest> requests) {
  PITON_ASSERT(engine.idle(), "an engine with other requests");
  Submitted submitted(engine);
  for (DecodingRequest& request : requests) {
    PITON_ASSERT(request.only_scores());
    submitted.numbers.push_back(engine.submit(std::move(request)));
  }
  std::vector<std::vector<GeneratedToken>> scored(requests.size());
  while (!engine.idle()) {
    for (DecodingEvent& event : engine.step())
      scored[static_cast<std::size_t>(event.request - submitted.numbers.front())] =
          std::move(event.scored);
  }
  return scored;
}

}  // namespace piton
