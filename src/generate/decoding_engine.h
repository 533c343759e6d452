// Many texts continued at the same time: requests come and go between passes.
//
// A pass computes the next token of every text that is being written, and a chunk of the prompts
// that wait (continuous batching). `generate`, `chat`, `serve` and `eval` use this interface; the
// server runs it on a separate thread. Methods are called by one thread. On a model of several
// ranks they are collective: every rank submits the same requests in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "generate/sampling.h"

namespace piton {

// Which tokens may come next in one text. Stateful: one object a request.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets allowed[id] for each id of the vocabulary; at least one of them is set, or done() is true.
  // `allowed` has as many elements as the vocabulary, all false before.
  virtual void allow(std::vector<bool>& allowed) = 0;
  virtual void advance(std::int32_t id) = 0;  // `id` was chosen; it was allowed
  // The text is complete: nothing can follow but its end.
  virtual bool done() const = 0;
};

struct DecodingRequest {
  std::vector<std::int32_t> prompt;
  // max_new_tokens may be 0 if tokens of the prompt are scored: nothing is generated then, and the
  // last token of the prompt is not read.
  SamplingOptions sampling;
  std::vector<std::int32_t> ends;  // ids that end the text; they are reported as its last token
  std::uint64_t draw = 0;          // coordinate of its random numbers: samples of one prompt differ
  std::shared_ptr<TokenConstraint> constraint;  // null: every token
  // Tokens of the prompt from this one on are scored: DecodingEvent::scored has the probability of
  // each, given those before it. At least 1; 0: none are.
  std::int64_t scored_from = 0;
  // Ids in the place of the prompt's last token that are scored as well.
  std::vector<std::int32_t> alternatives;
  // Index of the adapters that its tokens are computed with, among those of the model that requests
  // choose; nothing: none of them.
  std::optional<std::int64_t> adapter;

  bool only_scores() const { return scored_from > 0 && sampling.max_new_tokens == 0; }
};

enum class FinishReason : std::uint8_t {
  kNone,    // the text continues
  kStop,    // an id of `ends`, or the end of its constraint
  kLength,  // max_new_tokens, or the model's longest sequence; the end of what is only scored
};

// A token of a request, or its end.
struct DecodingEvent {
  std::int64_t request = 0;
  // id -1: none; its constraint was done before the first token, or the prompt is only scored.
  GeneratedToken token;
  FinishReason finish = FinishReason::kNone;
  // Once, with the first token: tokens of the prompt from scored_from on, then the alternatives,
  // with the likeliest ones as `sampling` says.
  std::vector<GeneratedToken> scored;
  // Tokens of the prompt that were found in the cache when its reading began.
  std::int64_t reused_tokens = 0;
};

// What the engine has done since it was made.
struct DecodingCounts {
  std::int64_t running = 0;          // requests with a place in the cache
  std::int64_t waiting = 0;          // requests without
  std::int64_t prompt_tokens = 0;    // submitted
  std::int64_t reused_tokens = 0;    // of them found in the cache
  std::int64_t computed_tokens = 0;  // rows of passes
  std::int64_t generated_tokens = 0;
  std::int64_t passes = 0;
  std::int64_t draft_tokens = 0;     // guesses that were read (generate/drafts.h)
  std::int64_t accepted_tokens = 0;  // of them, those that were right
  std::int64_t drafted_steps = 0;    // readings of a text with guesses
};

class DecodingEngine {
 public:
  virtual ~DecodingEngine() = default;
  // Returns the number of the request (0, 1, 2, ...). Throws Error(kUsage) as check_request() does;
  // then nothing was submitted.
  virtual std::int64_t submit(DecodingRequest request) = 0;
  // Ends a request: no more events of it. Its tokens stay in the cache as a prefix for others.
  // Does nothing if it has ended.
  virtual void cancel(std::int64_t request) = 0;
  // One pass, and the tokens that it gave. Empty only if idle() or if only prompts were computed.
  virtual std::vector<DecodingEvent> step() = 0;
  virtual bool idle() const = 0;  // no request runs or waits
  virtual DecodingCounts counts() const = 0;
};

}  // namespace piton
