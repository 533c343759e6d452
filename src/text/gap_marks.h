// The special tokens of models that fill a gap in a text (Bavarian et al. 2022, arXiv:2207.14255).
#pragma once

#include <cstdint>
#include <optional>

#include "text/tokenizer.h"

namespace piton {

// The model reads `before`, the text before the gap, `after`, the text after it, `gap`, and writes
// what is between them.
struct GapMarks {
  std::int32_t before = 0;
  std::int32_t after = 0;
  std::int32_t gap = 0;
};

// By the names of StarCoder, of Qwen 2.5 Coder and CodeGemma, and of DeepSeek Coder; nothing if the
// vocabulary has none of them.
std::optional<GapMarks> gap_marks(const Tokenizer& tokenizer);

}  // namespace piton
