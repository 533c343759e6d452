// The tokenizer of a run: that of the model of another program in --load, or the one that is named.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model_files/opened_model.h"
#include "train/run/pretrain_options.h"

namespace piton {

// --tokenizer-name-or-path of a run that takes the tokenizer of `model`; "" where it has none. A
// tokenizer inside a GGUF file becomes files when the run keeps it in `save`: the result is
// their folder.
// Without --save it is the GGUF file.
std::string place_of_tokenizer(const OpenedModel& model, const std::string& save);

// `options` get the tokenizer of `from`, but keep their padding, which is of the table alone.
void take_tokenizer(const TokenizerOptions& from, TokenizerOptions& options);

// Opens the tokenizer that `options` name, after adopt_foreign_model(); null: none. Its ids must
// have rows in the model of `foreign`; where it is another than the model's own, adds a note and a
// fact of that to `foreign`. Throws Error(kData) as open_tokenizer() and check_rows_for().
std::unique_ptr<Tokenizer> open_run_tokenizer(const PretrainOptions& options,
                                              std::optional<OpenedModel>& foreign);

// The chat templates of a run.
struct RunTemplates {
  ModelChatTemplates templates = {};
  std::string note = {};  // a line about where they are from, if not from its tokenizer; or ""
  std::string kept = {};  // then the default one, which the run keeps
};

// Those in the files of that tokenizer, or of the adapters in --lora-load, where these have some.
RunTemplates chat_templates_of_run(const PretrainOptions& options,
                                   const std::optional<OpenedModel>& foreign);

// The ids at which texts of the run's model end (model_files/generation_ends.h): what the files
// next to those of `tokenizer`, which `options` name, say.
std::vector<std::int32_t> text_ends_of_run(const TokenizerOptions& options,
                                           const Tokenizer& tokenizer);

// Keeps its files in --save (keep_tokenizer() in model_files/model_tokenizer.h).
void keep_run_tokenizer(const PretrainOptions& options, const std::optional<OpenedModel>& foreign,
                        const Tokenizer& tokenizer);

}  // namespace piton
