#include "train/run/corpus_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/corpus/corpus_card.h"

namespace piton {
namespace {

constexpr std::int64_t kDocumentsLookedAt = 64;

bool begins_with(const IndexedDataset& corpus, std::int64_t document,
                 const std::vector<std::int32_t>& ids) {
  const std::int64_t sequence = corpus.document_start(document);
  if (sequence >= corpus.sequences()) return false;  // an empty last document
  if (corpus.length(sequence) < static_cast<std::int64_t>(ids.size())) return false;
  std::vector<std::int32_t> first(ids.size());
  corpus.read(sequence, 0, first);
  return first == ids;
}

}  // namespace

std::optional<bool> has_special_tokens(const IndexedDataset& corpus, const TextFrame& frame) {
  if (const std::optional<CorpusCard> card = read_card(corpus.prefix())) {
    const auto said = card->options.find("add-special-tokens");
    if (said != card->options.end()) return said->second == "true";
  }
  // What follows a text may be the end of a document, so only what is before it tells.
  if (frame.before.empty()) return std::nullopt;
  const std::int64_t looked = std::min(corpus.documents(), kDocumentsLookedAt);
  std::int64_t framed = 0;
  for (std::int64_t i = 0; i < looked; ++i) {
    // Spread over the corpus: its parts may come from several places.
    const std::int64_t document = i * corpus.documents() / looked;
    if (begins_with(corpus, document, frame.before)) ++framed;
  }
  if (looked == 0 || (framed != 0 && framed != looked)) return std::nullopt;
  return framed == looked;
}

std::optional<bool> have_special_tokens(
    const std::vector<std::shared_ptr<const IndexedDataset>>& corpora, const Tokenizer& tokenizer,
    Log& notes) {
  const TextFrame frame = frame_of(tokenizer);
  if (frame.empty()) return std::nullopt;
  std::string with, without;
  for (const auto& corpus : corpora) {
    const std::optional<bool> has = has_special_tokens(*corpus, frame);
    if (!has) return std::nullopt;
    (*has ? with : without) = corpus->prefix();
  }
  if (!with.empty() && !without.empty()) {
    notes.warning(
        fmt::format("special tokens: {} has no special tokens around its texts, and {} has ({}); "
                    "preprocess them alike",
                    without, with, describe_frame(tokenizer)));
    return std::nullopt;
  }
  if (with.empty() && without.empty()) return std::nullopt;
  if (with.empty()) {
    notes.info(
        fmt::format("special tokens: the corpora have none; generate and score of this run will "
                    "add none (the tokenizer's own setting: {})",
                    describe_frame(tokenizer)));
  }
  return without.empty();
}

void warn_of_sentences(const std::vector<std::shared_ptr<const IndexedDataset>>& corpora,
                       Log& notes) {
  for (const auto& corpus : corpora) {
    const std::optional<CorpusCard> card = read_card(corpus->prefix());
    const bool has_sentences = card ? card->options.contains("split-sentences") &&
                                          card->options.at("split-sentences") == "true"
                                    : corpus->prefix().ends_with("_sentence");
    if (!has_sentences) continue;
    notes.warning(fmt::format(
        "{}: is divided into sentences, which BERT and T5 read, and the model is a decoder; give "
        "--model-family bert or t5 to train those",
        corpus->prefix()));
  }
}

std::string chat_template_of(const std::vector<std::shared_ptr<const IndexedDataset>>& corpora,
                             Log& notes) {
  std::string found, where;
  for (const auto& corpus : corpora) {
    const std::optional<CorpusCard> card = read_card(corpus->prefix());
    if (!card) continue;
    if (!where.empty() && card->chat_template != found) {
      notes.warning(
          fmt::format("chat template: {} and {} were preprocessed with different prompts "
                      "(--prompt-type); the run keeps the model's own template",
                      where, corpus->prefix()));
      return "";
    }
    found = card->chat_template;
    where = corpus->prefix();
  }
  return found;
}

SpecialTokensRule rule_of_run(const std::map<std::string, std::string>& facts) {
  const auto fact = facts.find(kSpecialTokensFact);
  if (fact == facts.end()) {
    return {.add = true,
            .why =
                "the tokenizer's own setting; how the run's corpus was made is "
                "not known"};
  }
  return {.add = fact->second == "true", .why = "as the corpus of the run"};
}

}  // namespace piton
