// A run keeps its tokenizer: DIR/tokenizer holds a copy of the files, so that a checkpoint can be
// used from any working directory, and after the originals are gone.
#pragma once

#include <filesystem>

#include "text/files/tokenizer_options.h"

namespace piton {

// Copies the tokenizer's files to `run`/tokenizer, unless a tokenizer of the same content is there
// already. Throws Error(kData) if they cannot be copied, or do not read back as the same tokenizer.
void keep_tokenizer(const TokenizerOptions& options, const Tokenizer& tokenizer,
                    const std::filesystem::path& run);

// `options` as stored beside a checkpoint, with the run's own files in place of those it was
// started with, where it has them. `checkpoint`: a folder of the run.
TokenizerOptions kept_tokenizer(const TokenizerOptions& options,
                                const std::filesystem::path& checkpoint);

// The tokenizer whose files are in `folder`, beside a model's; empty() where there are none.
TokenizerOptions tokenizer_of_folder(const std::filesystem::path& folder);

// With absolute paths.
TokenizerOptions from_anywhere(const TokenizerOptions& options);

}  // namespace piton
