// The ids at which texts of a model end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model_files/opened_model.h"
#include "text/tokenizer.h"

namespace piton {

// eos_token_id of generation_config.json in `folder`, or, where that names none, of config.json, as
// Transformers does: one id, or a list (the end of the text, of an answer, of a tool call). Empty
// if neither has it, or the folder is "". Throws Error(kData) if a file cannot be read, or the
// entry is something else.
std::vector<std::int32_t> generation_ends(const std::filesystem::path& folder);

// The same of a model in any format; of a GGUF file tokenizer.ggml.eot_token_id and eom_token_id.
// What config.json of the folder says that a run started from is not of a run with another
// tokenizer.
std::vector<std::int32_t> generation_ends(const OpenedModel& model);

// All ids at which a text ends, each once: `stated` ones, and the tokenizer's ends of text and of
// document. `tokenizer` may be null.
std::vector<std::int32_t> text_ends(const std::vector<std::int32_t>& stated,
                                    const Tokenizer* tokenizer);

}  // namespace piton
