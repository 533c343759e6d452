// The letter of a choice in a free answer: --alternative-prompt of MindSpeed-LLM's MMLU.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// A to D, or "" if there is none. Phrases of Chinese and English answers are searched for in the
// order of MindSpeed-LLM (eval_utils/mmlu_utils.py with --origin-postprocess), which has them from
// OpenCompass: the first one whose leftmost place ends with a letter decides, else the first letter
// of the text. Its phrases that always end with another character never decide and are left out.
std::string choice_after_phrases(std::string_view text);

}  // namespace piton
