// The decoding engine over a model's ranks: continuous batching with a cache in pages.
//
// Each pass reads the next token of every text whose prompt is read, and up to `prompt_tokens` of
// the other prompts, oldest request first. A request starts when the cache has room for its prompt;
// its beginning is taken from the cache where an earlier text began like it. If the cache is full,
// pages of ended texts are forgotten, those used least recently first; then the newest text gives
// up its place and is read again later.
//
// Prompts whose tokens see one another (ModelConfig::prefix) are read whole, each in its own pass,
// and share no beginning with others.
//
// A request has the tokens that it has alone, except where two are so near that the order of a sum
// decides: random numbers are drawn by the coordinates of the request, and rotary angles that
// depend on a text's length are those of this text.
#pragma once

#include <memory>

#include "generate/decoding_engine.h"
#include "generate/drafts.h"
#include "generate/inference.h"

namespace piton {

struct DecodingLimits {
  std::int64_t texts = 256;          // that are read or written at the same time
  std::int64_t prompt_tokens = 512;  // of all prompts, in one pass
  // Tokens for which the cache has room, ended texts included; at least one of the model's longest
  // sequence. 0: for that and 4096 more, and for as many as the texts need that are written.
  std::int64_t cache_tokens = 0;
};

// Who guesses the next tokens: one of them, or nobody.
struct DraftSource {
  DraftSource(Drafter* other = nullptr) : drafter(other) {}  // NOLINT
  // The model itself, up to `most` tokens at a time (generate/later_drafts.h).
  static DraftSource later_layer(std::int64_t most) {
    DraftSource source;
    source.later_tokens = most;
    return source;
  }

  bool guesses() const { return drafter != nullptr || later_tokens > 0; }

  Drafter* drafter;
  std::int64_t later_tokens = 0;
};

// `inference` and the drafter, if there is one, must outlive the engine. The cache is allocated
// when texts need it. Guesses change nothing but the number of passes: texts under a constraint get
// none, and none are read where there is no room for them.
std::unique_ptr<DecodingEngine> make_batched_engine(Inference& inference,
                                                    const DecodingLimits& limits,
                                                    const DraftSource& drafts = {});

}  // namespace piton
