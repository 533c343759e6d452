// The BasicTokenizer of Google's BERT in Python, which Megatron's BertWordPiece types use. It
// differs from the `tokenizers` library in control characters, lower case and the Unicode version.
#pragma once

#include <memory>

#include "text/steps/pre_tokenizers.h"

namespace piton {

// Cleans, puts spaces around ideographs, splits at white space, lowers case and strips accents if
// `lowercase`, isolates punctuation. Characters as of Unicode 14.0 (Python 3.11).
std::unique_ptr<PreTokenizer> make_basic_tokenizer(bool lowercase);

}  // namespace piton
