// Likelihoods of given tokens, by a decoding engine: of continuations of texts, and of whole texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "generate/decoding_engine.h"

namespace piton {

struct ContinuationRequest {
  std::vector<std::int32_t> ids;  // a context and its continuation
  std::size_t given = 0;          // tokens of the context: at least 1, fewer than ids.size()
};

struct ContinuationScore {
  double log_likelihood = 0;  // of all tokens after the context, natural logarithm
  bool greedy = false;        // each of them is the likeliest one; the lowest id on ties
};

// Scores all requests at the same time. What several of them begin with is computed once, as far as
// the engine still has it (generate/batched_engine.h); requests that differ in the last token alone
// are one request of the engine. The engine must be idle. Throws as DecodingEngine::submit() does,
// and Error(kData) if a logit is not finite.
std::vector<ContinuationScore> score_continuations(DecodingEngine& engine,
                                                   std::span<const ContinuationRequest> requests);

// The log-likelihood of each token but the first of each text. Throws as score_continuations().
std::vector<std::vector<double>> score_texts(DecodingEngine& engine,
                                             std::span<const std::vector<std::int32_t>> texts);

// Rows that have to be computed at least for these requests: common beginnings once.
std::int64_t distinct_tokens(std::span<const ContinuationRequest> requests);

}  // namespace piton
