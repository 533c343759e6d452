// What of a generated text is the answer, where a model reasons before it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace piton {

// The text after the last `end` (all of it, if there is none), without the white space at its
// beginning, up to the first of the words `stop`: as lm-evaluation-harness 0.4 has it with
// think_end_token (models/utils.py, postprocess_generated_text). `end` is not empty.
std::string answer_after(std::string_view text, std::string_view end,
                         std::span<const std::string> stop);

}  // namespace piton
