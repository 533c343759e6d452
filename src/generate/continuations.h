// Likelihoods of continuations of a text, several at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "generate/inference.h"

namespace piton {

struct ContinuationRequest {
  std::vector<std::int32_t> ids;  // a context and its continuation
  std::size_t given = 0;          // tokens of the context: at least 1, fewer than ids.size()
};

struct ContinuationScore {
  double log_likelihood = 0;  // of all tokens after the context, natural logarithm
  bool greedy = false;        // each of them is the likeliest one; the lowest id on ties
};

// Scores all requests. Continuations of the same context are read after one pass over it, where
// this saves work; requests that differ in the last token alone are read once; all others are
// padded and read in one pass. Logits exist only for the rows of the continuations: fp32 [rows, V]
// of a pass. Collective over the model's ranks: all get the same scores. Throws Error(kData) if a
// logit is not finite.
std::vector<ContinuationScore> score_continuations(Inference& inference,
                                                   std::span<const ContinuationRequest> requests);

}  // namespace piton
