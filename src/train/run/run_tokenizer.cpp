#include "train/run/run_tokenizer.h"

#include <filesystem>

#include "checkpoint/store.h"
#include "model_files/chosen_tokenizer.h"
#include "model_files/generation_ends.h"
#include "model_files/native_config.h"
#include "model_files/opened_adapter.h"

namespace piton {
namespace {

// Whether the run's tokenizer is the one inside the file of the model.
bool is_in_model(const PretrainOptions& options, const std::optional<OpenedModel>& foreign) {
  return foreign && !foreign->tokenizer.texts.empty() &&
         options.tokenizer.name_or_path == place_of_tokenizer(*foreign, options.loop.save);
}

// Of the run's tokenizer: those inside the model's file, or those that the options name.
ModelTokenizer files_of_tokenizer(const PretrainOptions& options,
                                  const std::optional<OpenedModel>& foreign) {
  if (is_in_model(options, foreign)) return foreign->tokenizer;
  return chosen_tokenizer(options.tokenizer).tokenizer;
}

ModelChatTemplates templates_of_tokenizer(const PretrainOptions& options,
                                          const std::optional<OpenedModel>& foreign) {
  if (is_in_model(options, foreign)) return foreign->chat_templates;
  // A run whose tokenizer has no files may have the template of its data.
  const bool has_files = !options.tokenizer.name_or_path.empty();
  if (!has_files && foreign && foreign->format == ModelFormat::kPiton)
    return foreign->chat_templates;
  if (!has_files && !foreign && !options.loop.load.empty() && holds_checkpoint(options.loop.load)) {
    const std::filesystem::path checkpoint = find_checkpoint(options.loop.load);
    const NativeConfig config = read_native_config(checkpoint);
    return chat_templates_in(tokenizer_of_checkpoint(config.tokenizer, checkpoint).folder);
  }
  return chosen_tokenizer(options.tokenizer).chat_templates;
}

}  // namespace

void take_tokenizer(const TokenizerOptions& from, TokenizerOptions& options) {
  const TokenizerOptions given = options;
  options = from;
  options.make_vocab_size_divisible_by = given.make_vocab_size_divisible_by;
  options.pad_vocab_size_to = given.pad_vocab_size_to;
}

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

RunTemplates chat_templates_of_run(const PretrainOptions& options,
                                   const std::optional<OpenedModel>& foreign) {
  RunTemplates found{.templates = templates_of_tokenizer(options, foreign)};
  const std::string& adapters = options.loop.lora_load;
  if (!adapters.empty()) found.note = take_chat_templates(adapters, found.templates);
  if (!found.note.empty()) found.kept = default_chat_template(found.templates.files);
  return found;
}

std::vector<std::int32_t> text_ends_of_run(const TokenizerOptions& options,
                                           const Tokenizer& tokenizer) {
  return text_ends(generation_ends(tokenizer_of(options).folder), &tokenizer);
}

void keep_run_tokenizer(const PretrainOptions& options, const std::optional<OpenedModel>& foreign,
                        const Tokenizer& tokenizer) {
  keep_tokenizer(files_of_tokenizer(options, foreign), tokenizer, options.loop.save);
}

}  // namespace piton
