// A run keeps its tokenizer: DIR/tokenizer holds a copy of the files, so that a checkpoint can be
// used from any working directory, and after the originals are gone.
#pragma once

#include <filesystem>

#include "text/files/tokenizer_options.h"

namespace piton {

// Of a run's folder, or a checkpoint's.
inline constexpr const char* kTokenizerFolder = "tokenizer";
// Name of a fact (TrainState::facts): the hash of what the tokenizer does.
inline constexpr const char* kTokenizerFact = "tokenizer";

// Name of a fact: "true" if the weights come from a model with another tokenizer than the run's.
inline constexpr const char* kOtherTokenizerFact = "tokenizer.other";

// A line for the user if `used` is not the tokenizer of the model in `folder`, whose files `own`
// names, with the first difference. "" if it is, or if the model's cannot be read.
std::string other_tokenizer_note(const Tokenizer& used, const TokenizerOptions& own,
                                 const std::string& folder);
std::string other_tokenizer_note(const Tokenizer& used, const Tokenizer& own,
                                 const std::string& folder);

// Copies the files of the tokenizer to `run`/tokenizer, unless the same tokenizer is there already.
// Throws Error(kData) if they cannot be copied, or if the copy is not the same tokenizer.
void keep_tokenizer(const TokenizerOptions& options, const Tokenizer& tokenizer,
                    const std::filesystem::path& run);

// `options`, as stored with a checkpoint, but with the copies of the tokenizer's files in the run's
// folder, if they exist. `checkpoint`: a checkpoint folder of the run.
TokenizerOptions kept_tokenizer(const TokenizerOptions& options,
                                const std::filesystem::path& checkpoint);

// The tokenizer whose files are in `folder`, next to a model's; empty() if there is none.
TokenizerOptions tokenizer_of_folder(const std::filesystem::path& folder);

// Decided by name: true for tokenizer files and for generation settings. Other files of a model may
// have many gigabytes.
bool belongs_to_tokenizer(const std::filesystem::path& file);

// `options` with absolute paths.
TokenizerOptions from_anywhere(const TokenizerOptions& options);

}  // namespace piton
