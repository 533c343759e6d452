// Guesses of the next tokens of texts by the model itself, with the first of its layers that
// predict later tokens (nn/later_tokens.h), for speculative decoding (generate/drafts.h).
//
// Row i of the layer reads the hidden state of token i and the embedding of token i + 1, and gives
// logits of token i + 2: the first guess after the token that was just drawn. For further guesses
// the layer is applied again: to its own output, and to the guess as if it had been drawn (as
// vLLM does with one such layer).
//
// The layer has its own keys and values in the pages of the model's cache. They are written for
// every row of every pass, so a text that begins with the pages of another one finds them. Where
// the texts part, the last row of these pages has read the other text's next token; guesses alone
// depend on it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "generate/inference.h"

namespace piton {

// Rows of a text that the model has read.
struct LaterReading {
  std::int64_t text = 0;               // its number in the cache
  std::int64_t begin = 0;              // position of the first of the rows
  std::int64_t first_row = 0;          // number of that row in the pass
  std::span<const std::int32_t> next;  // the token after each of them
  std::int64_t whole = 0;              // TextTokens::whole
  std::int64_t most = 0;               // guesses; not 0: `next` ends with the text's last token
};

// Reads the rows and guesses: for each text at most as many tokens as it asks for. `hidden`: of all
// rows of the pass (PassResults). The cache has free pages for all guesses but the last of each
// text, and has the same tokens afterwards. Collective, with the same result on all ranks.
std::vector<std::vector<std::int32_t>> later_drafts(Inference& inference,
                                                    std::span<const LaterReading> readings,
                                                    const Tensor& hidden, KvCache& cache);

}  // namespace piton
