// Whether two tokenizers are the same: the same text for each id, and the same ids for a few
// hundred varied texts. Names in messages: `a` and `b`, "MODEL's tokenizer".
#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace piton {

// Texts of many scripts, spaces, digits and symbols, whole and in pieces, and texts of ids spread
// over the vocabulary. Without the names of special tokens. The same for the same tokenizer.
std::vector<std::string> varied_texts(const Tokenizer& tokenizer);

struct NamedTokenizer {
  const Tokenizer& tokenizer;
  std::string name;
};

struct ComparedParts {
  bool special_tokens = true;  // the ids with special tokens around the text, too
  bool decoded_text = true;    // the text of the ids, too
};

// The first of `texts` with other ids, or whose ids decode to another text:
// "\"abc\" is 5 6 in A, 7 in B". "" if there is none.
std::string text_difference(const NamedTokenizer& a, const NamedTokenizer& b,
                            const std::vector<std::string>& texts, ComparedParts parts = {});

// The first id of another text ("id 257: \"abc\" in A, \"xyz\" in B"), else text_difference() of
// varied_texts(). "" if the tokenizers are the same.
std::string first_difference(const NamedTokenizer& a, const NamedTokenizer& b);

}  // namespace piton
