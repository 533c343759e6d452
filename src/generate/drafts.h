// Guesses of the next tokens of texts, for speculative decoding (Leviathan et al. 2022,
// arXiv:2211.17192). The engine reads the guesses in one pass with the token before them, and draws
// each token as it would without: a guess is accepted if it is the token that is drawn. Random
// numbers have the coordinates of the token, so texts are the same with and without guesses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "generate/decoding_engine.h"

namespace piton {

// A text whose next tokens are guessed.
struct DraftRequest {
  std::span<const std::int32_t> ids;  // at least one
  std::int64_t most = 0;              // guesses
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  // The most guesses for one text.
  virtual std::int64_t most() const = 0;
  // For each text what may follow it: at most as many ids as it asks for, or none. On a model of
  // several ranks collective, with the same result on all of them.
  virtual std::vector<std::vector<std::int32_t>> drafts(std::span<const DraftRequest> texts) = 0;
};

// Guesses that a text continues as it did after an earlier place with the same last tokens: the
// longest such ending of 2 to 4 tokens, and of its places the last one (Saxena 2023, "Prompt Lookup
// Decoding").
std::unique_ptr<Drafter> make_prompt_lookup(std::int64_t most);

// Guesses what another model, with the same ids, would write: its likeliest tokens. `engine` is
// idle between calls; `longest` is the model's longest sequence.
std::unique_ptr<Drafter> make_model_drafter(DecodingEngine& engine, std::int64_t longest,
                                            std::int64_t most);

}  // namespace piton
