#include "data/corpus/corpus_card.h"

#include <filesystem>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"

namespace piton {
namespace {

constexpr std::int64_t kLongestBytes = 1 << 20;

std::string path_of(const std::string& prefix) { return prefix + ".json"; }

}  // namespace

void write_card(const std::string& prefix, const CorpusCard& card) {
  nlohmann::ordered_json json = {{"tokenizer",
                                  {{"name", card.tokenizer_name},
                                   {"hash", card.tokenizer_hash},
                                   {"vocabulary", card.vocabulary}}},
                                 {"options", card.options}};
  if (!card.chat_template.empty()) json["chat_template"] = card.chat_template;
  json["documents"] = card.documents;
  json["tokens"] = card.tokens;
  json["piton"] = card.made_by;
  write_text_file(path_of(prefix), json.dump(2) + "\n");
}

std::optional<CorpusCard> read_card(const std::string& prefix) {
  const std::string path = path_of(prefix);
  if (!std::filesystem::is_regular_file(path)) return std::nullopt;
  // PREFIX.json may also be a data set with the name of its corpus, of any size.
  if (std::filesystem::file_size(path) > static_cast<std::uintmax_t>(kLongestBytes)) {
    return std::nullopt;
  }
  const auto json = read_json_or_discarded<nlohmann::json>(read_text_file(path, kLongestBytes));
  if (!json.is_object() || !json.contains("piton")) return std::nullopt;
  try {
    const auto& tokenizer = json.at("tokenizer");
    return CorpusCard{.tokenizer_name = tokenizer.at("name"),
                      .tokenizer_hash = tokenizer.at("hash"),
                      .vocabulary = tokenizer.at("vocabulary"),
                      .options = json.at("options"),
                      .chat_template = json.value("chat_template", ""),
                      .documents = json.at("documents"),
                      .tokens = json.at("tokens"),
                      .made_by = json.at("piton")};
  } catch (const nlohmann::json::exception& error) {
    throw Error(
        Fault::kData,
        "{}: not a card that preprocess wrote next to a corpus: {}; restore it, or remove it", path,
        error.what());
  }
}

std::string check_card(const std::string& prefix, std::int64_t tokens,
                       const std::string& tokenizer_name, const std::string& tokenizer_hash) {
  const std::optional<CorpusCard> card = read_card(prefix);
  if (!card) {
    if (tokenizer_hash.empty()) return "";
    return fmt::format(
        "{}: nothing says which tokenizer made it ({} is missing); taken as made by the run's own",
        prefix, path_of(prefix));
  }
  if (card->tokens != tokens) {
    throw Error(
        Fault::kData,
        "{}: says {} tokens, and {}.bin has {}; it belongs to another corpus: restore the three "
        "files, or remove it",
        path_of(prefix), card->tokens, prefix, tokens);
  }
  if (!tokenizer_hash.empty() && card->tokenizer_hash != tokenizer_hash) {
    throw Error(Fault::kData,
                "{}: its ids are of the tokenizer {} ({}), and the run has {} ({}); name that "
                "tokenizer, or preprocess again",
                prefix, card->tokenizer_name, card->tokenizer_hash.substr(0, 8), tokenizer_name,
                tokenizer_hash.substr(0, 8));
  }
  return "";
}

}  // namespace piton
