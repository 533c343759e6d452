#include "train/run/run_tokenizer.h"

#include <filesystem>

#include "model_files/chosen_tokenizer.h"

namespace piton {
namespace {

// Of the run's tokenizer: those inside the model's file, or those that the options name.
ModelTokenizer files_of_tokenizer(const PretrainOptions& options,
                                  const std::optional<OpenedModel>& foreign) {
  if (foreign && !foreign->tokenizer.texts.empty() &&
      options.tokenizer.name_or_path == place_of_tokenizer(*foreign, options.loop.save))
    return foreign->tokenizer;
  return chosen_tokenizer(options.tokenizer).tokenizer;
}

}  // namespace

std::string place_of_tokenizer(const OpenedModel& model, const std::string& save) {
  if (model.tokenizer.texts.empty()) return model.tokenizer.options.name_or_path;
  if (save.empty()) return model.source->where();
  return (std::filesystem::absolute(save) / kTokenizerFolder).lexically_normal().string();
}

std::unique_ptr<Tokenizer> open_run_tokenizer(const PretrainOptions& options,
                                              std::optional<OpenedModel>& foreign) {
  const std::string& load = options.loop.load;
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(files_of_tokenizer(options, foreign), load);
  if (!foreign || !tokenizer) return tokenizer;
  check_rows_for(*tokenizer, foreign->model, load);
  const std::string note = other_tokenizer_note(*tokenizer, foreign->tokenizer, load);
  if (!note.empty()) {
    foreign->notes.push_back(note);
    foreign->facts[kOtherTokenizerFact] = "true";
  }
  return tokenizer;
}

void keep_run_tokenizer(const PretrainOptions& options, const std::optional<OpenedModel>& foreign,
                        const Tokenizer& tokenizer) {
  keep_tokenizer(files_of_tokenizer(options, foreign), tokenizer, options.loop.save);
}

}  // namespace piton
