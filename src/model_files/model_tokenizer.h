// The tokenizer of a model on disk. A run keeps a copy of its files in DIR/tokenizer, so that a
// checkpoint can be used from any working directory, and after the originals are gone.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "text/files/tokenizer_options.h"

namespace piton {

// Of a run's folder, or a checkpoint's.
inline constexpr const char* kTokenizerFolder = "tokenizer";
// Name of a fact (TrainState::facts): the hash of what the tokenizer does.
inline constexpr const char* kTokenizerFact = "tokenizer";
// Name of a fact: "true" if the weights come from a model with another tokenizer than the run's.
inline constexpr const char* kOtherTokenizerFact = "tokenizer.other";
// The end of the names of chat templates.
inline constexpr std::string_view kTemplateEnd = ".jinja";

struct ModelTokenizer {
  TokenizerOptions options;      // that open it; empty(): there is none, or `texts` has it
  std::filesystem::path folder;  // of its files; "": none
  // Contents of its files by their names, where they are inside the file of the model (GGUF): then
  // `options` is empty.
  std::map<std::string, std::string> texts;

  bool empty() const { return options.empty() && texts.empty(); }
};

// `options`, and the folder of the files that they name.
ModelTokenizer tokenizer_of(const TokenizerOptions& options);

// Those whose files are in `folder`, next to a model's; empty() if there are none.
ModelTokenizer tokenizer_of_folder(const std::filesystem::path& folder);

// Null where there is none. `where`: what has `texts`, for messages. Throws as open_tokenizer().
std::unique_ptr<Tokenizer> open_tokenizer(const ModelTokenizer& tokenizer,
                                          const std::string& where);

// A line for the user if `used` is not `own`, the tokenizer of the model in `folder`, with the
// first difference. "" if it is, or if the model's cannot be read.
std::string other_tokenizer_note(const Tokenizer& used, const ModelTokenizer& own,
                                 const std::string& folder);

// The tokenizer's ids must have rows; a table with more of them than ids is common. Throws
// Error(kData) that names the `folder` of the model.
void check_rows_for(const Tokenizer& tokenizer, const ModelConfig& model,
                    const std::string& folder);

// Puts the files of the tokenizer into `run`/tokenizer, unless the same tokenizer is there already.
// `opened`: the tokenizer of `files`. Throws Error(kData) if they cannot be copied, or if the copy
// is not the same tokenizer.
void keep_tokenizer(const ModelTokenizer& files, const Tokenizer& opened,
                    const std::filesystem::path& run);

// Puts `text` (Jinja) into `run`/tokenizer as its default template; "": does nothing.
void keep_chat_template(const std::string& text, const std::filesystem::path& run);

// `options`, as stored with a checkpoint, but with the copies of the tokenizer's files in the run's
// folder, if they exist. `checkpoint`: a checkpoint folder of the run.
TokenizerOptions kept_tokenizer(const TokenizerOptions& options,
                                const std::filesystem::path& checkpoint);

// The tokenizer of a checkpoint, with `options` of kept_tokenizer(). Its folder is the run's also
// where the tokenizer has no files: a chat template may be there.
ModelTokenizer tokenizer_of_checkpoint(const TokenizerOptions& options,
                                       const std::filesystem::path& checkpoint);

// Files in `folder` that belong to a tokenizer: its own, chat templates, also those in
// chat_templates/, and generation settings. Decided by name: other files of a model may have many
// gigabytes.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

// `options` with absolute paths.
TokenizerOptions from_anywhere(const TokenizerOptions& options);

}  // namespace piton
