// Texts continued, or scored, by a decoding engine until all have ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "generate/decoding_engine.h"

namespace piton {

struct PromptBatch {
  std::span<const std::vector<std::int32_t>> ids;  // at least one id each
  std::span<const std::uint64_t> draws;            // DecodingRequest::draw of each; empty: 0
  std::vector<std::int32_t> ends;                  // DecodingRequest::ends
  // DecodingRequest::constraint of each; empty: none.
  std::span<const std::shared_ptr<TokenConstraint>> constraints = {};
  std::span<const std::optional<std::int64_t>> adapters = {};  // the same; empty: none
};

// Continues all prompts at the same time, each until max_new_tokens, an id of `ends`, or the
// model's longest sequence. The engine must be idle. `each` sees a token as soon as it is drawn,
// with the index of its prompt; false from it ends that text (on every rank alike). Throws as
// DecodingEngine::submit() does, before the first token.
std::vector<std::vector<GeneratedToken>> generate_batch(
    DecodingEngine& engine, const PromptBatch& prompts, const SamplingOptions& options,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each);

// The scored tokens (DecodingEvent::scored) of requests that are only scored. The engine must be
// idle. Throws as DecodingEngine::submit() does.
std::vector<std::vector<GeneratedToken>> score_prompts(DecodingEngine& engine,
                                                       std::vector<DecodingRequest> requests);

}  // namespace piton
