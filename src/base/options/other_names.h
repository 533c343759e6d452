// Spellings of names of options, and those that flags of this program have in Transformers, PEFT,
// LlamaFactory, Axolotl, lm-evaluation-harness, vLLM and llama.cpp, for "did you mean".
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace piton {

// `name` with "-" for each "_": keys of TOML files often have "_", flags "-", and they are equal.
std::string with_dashes(std::string_view name);

// Flags with the same meaning, without dashes, the likeliest one first; none if `name` (with "-" or
// "_" between words) is not the name of such a flag.
std::span<const std::string_view> names_here(std::string_view name);

// `text` with each flag in it as the user typed it. `typed`: OptionSet::other_names_given().
std::string with_typed_names(std::string text, const std::map<std::string, std::string>& typed);

}  // namespace piton
