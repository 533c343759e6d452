// Whether the texts of a run's corpora have the tokenizer's special tokens around them, so that
// `generate` and `score` encode texts for the run as it was trained.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "data/corpus/indexed_dataset.h"
#include "text/special_tokens.h"

namespace piton {

// Name of a fact (TrainState::facts): "true" if the corpora have the tokenizer's special tokens
// around their texts, "false" if not. Absent: not known.
inline constexpr const char* kSpecialTokensFact = "special_tokens";

// As the card says; without one by the first ids of some documents. Nullopt: not known.
std::optional<bool> has_special_tokens(const IndexedDataset& corpus, const TextFrame& frame);

// The same of all corpora of a run. `notes` receives a line if that differs from the tokenizer's
// own setting, and a warning if the corpora differ from each other, which gives nullopt.
std::optional<bool> have_special_tokens(
    const std::vector<std::shared_ptr<const IndexedDataset>>& corpora, const Tokenizer& tokenizer,
    Log& notes);

// For a decoder: a warning for each corpus that is divided into sentences, which BERT and T5 read:
// by its card, or by the name that Megatron-LM gives it.
void warn_of_sentences(const std::vector<std::shared_ptr<const IndexedDataset>>& corpora,
                       Log& notes);

// The chat template of instruction data: that of the corpora's cards; "": the model's own. `notes`
// receives a warning if the corpora differ, which gives "".
std::string chat_template_of(const std::vector<std::shared_ptr<const IndexedDataset>>& corpora,
                             Log& notes);

// The rule for texts that a run with these facts reads.
SpecialTokensRule rule_of_run(const std::map<std::string, std::string>& facts);

}  // namespace piton
