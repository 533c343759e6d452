// The ids at which a model of Hugging Face ends a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace piton {

// eos_token_id of generation_config.json in `folder`: one id, or a list (the end of the text, of
// an answer, of a tool call). Empty if there is no such file or entry, or the folder is "". Throws
// Error(kData) if the file cannot be read, or the entry is something else.
std::vector<std::int32_t> generation_ends(const std::filesystem::path& folder);

}  // namespace piton
