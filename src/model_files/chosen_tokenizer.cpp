#include "model_files/chosen_tokenizer.h"

#include "base/error.h"
#include "checkpoint/read_newest.h"
#include "model_files/model_format.h"
#include "model_files/native_config.h"
#include "model_files/opened_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Of the newest checkpoint of a run, without its weights: a run of adapters has no others.
ChosenTokenizer tokenizer_of_run(const fs::path& path) {
  ChosenTokenizer chosen{.where = path.string()};
  read_newest(path, [&](const fs::path& checkpoint) {
    chosen.tokenizer =
        tokenizer_of_checkpoint(read_native_config(checkpoint).tokenizer, checkpoint);
  });
  chosen.chat_templates = chat_templates_in(chosen.tokenizer.folder);
  return chosen;
}

}  // namespace

ChosenTokenizer chosen_tokenizer(const TokenizerOptions& options) {
  const fs::path path = options.name_or_path;
  const bool may_be_model = options.type.empty() && !path.empty();
  ChosenTokenizer chosen;
  if (may_be_model && model_format_of(path) == ModelFormat::kGguf) {
    OpenedModel model = open_model({.path = path});
    chosen = {std::move(model.tokenizer), std::move(model.chat_templates), path.string()};
  } else if (may_be_model && tokenizer_of_folder(path).empty() && holds_checkpoint(path)) {
    chosen = tokenizer_of_run(path);
  } else {
    chosen.tokenizer = tokenizer_of(options);
    chosen.chat_templates = chat_templates_in(chosen.tokenizer.folder);
    return chosen;
  }
  if (chosen.tokenizer.empty()) {
    throw Error(Fault::kData,
                "{}: the model has no tokenizer; give the folder or file of one with "
                "--tokenizer-name-or-path",
                path.string());
  }
  return chosen;
}

std::unique_ptr<Tokenizer> open_tokenizer(const ChosenTokenizer& chosen) {
  // None is chosen: this throws, and says what can be given.
  if (chosen.tokenizer.empty()) return open_tokenizer(chosen.tokenizer.options);
  return open_tokenizer(chosen.tokenizer, chosen.where);
}

}  // namespace piton
