// The breakers of repeated runs (generate/repeated_runs.h) as ids of a vocabulary.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generate/repeated_runs.h"
#include "text/tokenizer.h"

namespace piton {

// The breakers of `texts`; llama.cpp's own if there are none (the end of a line, a colon, a
// quotation mark, a star), and no breaker at all for "none". A token with a whole text in it is
// one. So is a token that ends with a beginning of a text, with the tokens of the rest after it.
// Looks at the whole vocabulary.
std::shared_ptr<const RunBreakers> run_breakers(const Tokenizer& tokenizer,
                                                const std::vector<std::string>& texts);

}  // namespace piton
