#include "data/preprocess/preprocess_cards.h"

#include "data/corpus/corpus_card.h"

namespace piton {

void write_cards(const PreprocessOptions& options, const Tokenizer& tokenizer,
                 const PreprocessReport& done, const std::string& made_by) {
  const std::string_view sample_by[] = {"line", "paragraph", "document"};
  for (std::size_t i = 0; i < done.prefixes.size(); ++i) {
    if (!done.prompt.empty()) {
      write_card(done.prefixes[i],
                 {.tokenizer_name = tokenizer.name(),
                  .tokenizer_hash = tokenizer.content_hash(),
                  .vocabulary = tokenizer.vocabulary_size(),
                  .options = {{"handler-name", done.handler},
                              {"prompt-type", done.prompt},
                              {"append-eod", options.append_eod ? "true" : "false"},
                              {"pack", options.instruct.neat_pack ? "neat"
                                       : options.instruct.pack    ? "true"
                                                                  : "false"}},
                  .chat_template = done.chat_template,
                  .documents = done.documents,
                  .tokens = done.tokens[i],
                  .made_by = made_by});
      continue;
    }
    write_card(
        done.prefixes[i],
        {.tokenizer_name = tokenizer.name(),
         .tokenizer_hash = tokenizer.content_hash(),
         .vocabulary = tokenizer.vocabulary_size(),
         .options = {{"json-key", options.json_keys[i]},
                     {"sample-by", std::string(sample_by[static_cast<int>(options.sample_by)])},
                     {"append-eod", options.append_eod ? "true" : "false"},
                     {"add-special-tokens", options.add_special_tokens ? "true" : "false"},
                     {"split-sentences", options.split_sentences ? "true" : "false"},
                     {"remove-duplicates", options.remove_duplicates ? "true" : "false"}},
         .documents = done.documents,
         .tokens = done.tokens[i],
         .made_by = made_by});
  }
}

}  // namespace piton
