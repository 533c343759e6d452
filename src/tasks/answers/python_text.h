// Text functions with the results of Python's: prompts and decisions are those of
// lm-evaluation-harness and MindSpeed-LLM, which are written in Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace piton {

// str.isspace() of one character, which is also \s of the module re.
bool is_python_space(char32_t c);

// str.rstrip(), str.lstrip(), str.strip(): views of the same memory.
std::string_view python_right_stripped(std::string_view text);
std::string_view python_left_stripped(std::string_view text);
std::string_view python_stripped(std::string_view text);

// str.capitalize(): the first character in title case, all others in lower case.
std::string python_capitalized(std::string_view text);

// str.lower(), except that a sigma at the end of a word becomes the usual one.
std::string python_lower(std::string_view text);

// len(text): characters, not bytes.
std::int64_t python_length(std::string_view text);

// len(re.split(r"\s+", text)): one more than the number of runs of white space.
std::int64_t python_word_count(std::string_view text);

// text.replace(from, to); `from` is not empty.
std::string python_replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace piton
