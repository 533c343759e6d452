// A request of the batched engine and its text so far: what is read next, what the logits of its
// rows give, and when it ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "generate/decoding_engine.h"
#include "generate/token_draws.h"
#include "model/config.h"

namespace piton {

// Throws Error(kUsage) as check_prompt() and SamplingOptions::check() do. What is only scored may
// have one token more than the model reads.
void check_request(const ModelConfig& config, const DecodingRequest& request);

struct DecodedText {
  std::int64_t number = 0;  // of the request
  DecodingRequest request;
  std::vector<std::int32_t> ids;  // the prompt, then what was generated
  std::int64_t most_ids = 0;
  double most_surprise = 0;            // TokenDraw::most_surprise of the next token
  std::vector<GeneratedToken> scored;  // of the prompt, so far
  std::int64_t scored_rows = 0;        // that gave them
  // Tokens of the prompt that were in the cache when it first got a place; nothing: it got none.
  std::optional<std::int64_t> reused = {};

  // While it runs:
  std::int64_t place = 0;    // its number in the cache
  std::int64_t read_as = 0;  // ids.size() when the last pass read it; 0: none did
  // Node of its last whole page in the index; nothing: its pages are not indexed.
  std::optional<std::int64_t> node;
  std::int64_t indexed = 0;          // whole pages
  std::int64_t keep_at = 0;          // so many tokens of it are kept for others; 0: none
  std::vector<std::int32_t> drafts;  // guesses of the tokens after `ids`, for the next pass

  std::int64_t length() const { return std::ssize(ids); }
  std::int64_t generated() const { return length() - std::ssize(request.prompt); }
  // Tokens that are read before the next one is drawn, or before the text ends.
  std::int64_t to_read() const { return request.only_scores() ? length() - 1 : length(); }
  // The last token of the prompt: that after which the first one is scored or drawn.
  std::int64_t prompt_end() const {
    return request.scored_from > 0 ? request.scored_from - 1 : std::ssize(request.prompt) - 1;
  }
  // The first row whose logits are needed: of a token after which one is scored or drawn.
  std::int64_t first_row() const {
    const std::int64_t left = std::ssize(request.prompt) - request.scored_from - scored_rows;
    return request.scored_from > 0 && left > 0 ? request.scored_from - 1 + scored_rows
                                               : length() - 1;
  }
};

// What a pass reads of a text: tokens `begin` to `end` of it, and its drafts if there are any.
// Those from first_row() on give logits.
struct TextReading {
  std::size_t text = 0;  // index of the running texts
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t drafts = 0;
  std::int64_t count() const { return end - begin + drafts; }
  std::int64_t rows(const DecodedText& of) const {
    return std::max<std::int64_t>(0, end - std::max(begin, of.first_row())) + drafts;
  }
};

// Of the rows of a reading those after which tokens of the prompt are scored come first; from each
// of the others a token is drawn.
std::int64_t scored_rows(const DecodedText& text, const TextReading& reading);
std::int64_t drawn_rows(const DecodedText& text, const TextReading& reading);

// With what the drawn rows are drawn: a token after the whole text, and one after each draft, as if
// all drafts before it were right.
std::vector<TokenDraw> draws_of(const DecodedText& text, const TextReading& reading);

// Whether all tokens of the reading are the likeliest ones, as Inference::likeliest() gives them:
// then nothing has to be drawn.
bool takes_likeliest(const DecodedText& text, const TextReading& reading);

// Whether logits of rows are needed to score tokens or to name likely ones.
bool needs_logits(const DecodedText& text, const TextReading& reading);

// The tokens that the rows of a reading give: first those that are scored, then the drawn ones
// after the text and after each draft that is the token which was drawn. `logits` [rows x
// vocabulary]: empty unless needs_logits(). `drawn`: of each drawn row. Throws Error(kData) if
// logits are not finite. Changes nothing, so that ranks without logits can do the same with the
// tokens. `threads` share the rows; null: none.
std::vector<GeneratedToken> tokens_of_rows(const DecodedText& text, const TextReading& reading,
                                           std::span<const float> logits,
                                           std::span<const DrawnToken> drawn,
                                           ThreadPool* threads = nullptr);

// Adds the next of these tokens to the text; `tokens` begins after them then. Returns what there is
// to report: an event for each new token, or one about a text that is only scored.
std::vector<DecodingEvent> take_tokens(DecodedText& text, const TextReading& reading,
                                       std::span<GeneratedToken>& tokens);

// Tokens as bytes, for other ranks.
std::string bytes_of(std::span<const GeneratedToken> tokens);
std::vector<GeneratedToken> read_tokens(const std::string& bytes);

}  // namespace piton
