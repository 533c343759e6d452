#include "text/training/trained_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/training/bpe_trainer.h"
#include "text/training/unigram_trainer.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What a text is put between, as a template: "<s>", the text, "</s>"; null: nothing.
OrderedJson frame(const TokenizerPlan& plan, const std::string& before, const std::string& after) {
  const auto special = [](const std::string& token, int type) {
    return OrderedJson{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return OrderedJson{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  if (before.empty() && after.empty()) return nullptr;
  OrderedJson single = OrderedJson::array();
  OrderedJson pair = OrderedJson::array();
  if (!before.empty()) single.push_back(special(before, 0));
  single.push_back(text("A", 0));
  if (!after.empty()) single.push_back(special(after, 0));
  pair = single;
  const bool is_bert = plan.algorithm == VocabularyAlgorithm::kWordPiece;
  if (!before.empty() && !is_bert) pair.push_back(special(before, 1));
  pair.push_back(text("B", 1));
  if (!after.empty()) pair.push_back(special(after, 1));
  OrderedJson tokens = OrderedJson::object();
  for (const std::string& token : {before, after}) {
    if (token.empty()) continue;
    const auto id = std::find(plan.special_tokens.begin(), plan.special_tokens.end(), token) -
                    plan.special_tokens.begin();
    tokens[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", tokens}};
}

OrderedJson post_processor(const TokenizerPlan& plan) {
  switch (plan.algorithm) {
    case VocabularyAlgorithm::kByteLevelBpe:
      return {{"type", "ByteLevel"},
              {"add_prefix_space", true},
              {"trim_offsets", false},
              {"use_regex", true}};
    case VocabularyAlgorithm::kBpe:
      return frame(plan, plan.token_of("bos_token"), "");
    case VocabularyAlgorithm::kUnigram:
      return frame(plan, "", plan.token_of("eos_token"));
    case VocabularyAlgorithm::kWordPiece:
      return frame(plan, plan.token_of("cls_token"), plan.token_of("sep_token"));
  }
  return nullptr;
}

OrderedJson vocabulary_object(const std::vector<std::string>& pieces) {
  OrderedJson vocabulary = OrderedJson::object();
  // An ordered object looks a key up in all those before it; filled as a list it does not.
  auto& entries = vocabulary.get_ref<OrderedJson::object_t&>();
  for (std::size_t id = 0; id < pieces.size(); ++id) entries.emplace_back(pieces[id], id);
  return vocabulary;
}

OrderedJson bpe_model(const TokenizerPlan& plan, const TrainedBpe& trained) {
  const bool byte_fallback = plan.algorithm == VocabularyAlgorithm::kBpe;
  const std::string unknown = byte_fallback ? plan.token_of("unk_token") : "";
  OrderedJson merges = OrderedJson::array();
  for (const auto& [left, right] : trained.merges) {
    merges.push_back({trained.pieces[static_cast<std::size_t>(left)],
                      trained.pieces[static_cast<std::size_t>(right)]});
  }
  OrderedJson model = {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}};
  if (!unknown.empty()) model["unk_token"] = unknown;
  model["continuing_subword_prefix"] = nullptr;
  model["end_of_word_suffix"] = nullptr;
  model["fuse_unk"] = byte_fallback;
  model["byte_fallback"] = byte_fallback;
  model["ignore_merges"] = false;
  model["vocab"] = vocabulary_object(trained.pieces);
  model["merges"] = std::move(merges);
  return model;
}

OrderedJson wordpiece_model(const TokenizerPlan& plan, const TrainedBpe& trained) {
  OrderedJson model = {{"type", "WordPiece"}, {"unk_token", plan.token_of("unk_token")}};
  model["continuing_subword_prefix"] = "##";
  model["max_input_chars_per_word"] = 100;
  model["vocab"] = vocabulary_object(trained.pieces);
  return model;
}

OrderedJson unigram_model(const TokenizerPlan& plan, const std::vector<ScoredPiece>& pieces) {
  const auto unknown =
      std::find(plan.special_tokens.begin(), plan.special_tokens.end(), plan.token_of("unk_token"));
  OrderedJson vocabulary = OrderedJson::array();
  for (const ScoredPiece& piece : pieces) vocabulary.push_back({piece.text, piece.score});
  OrderedJson model = {{"type", "Unigram"}, {"unk_id", unknown - plan.special_tokens.begin()}};
  model["vocab"] = std::move(vocabulary);
  model["byte_fallback"] = false;
  return model;
}

std::string tokenizer_json(const TokenizerPlan& plan, OrderedJson model) {
  OrderedJson added = OrderedJson::array();
  for (std::size_t id = 0; id < plan.special_tokens.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", plan.special_tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  OrderedJson json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(added);
  json["normalizer"] = plan.normalizer;
  json["pre_tokenizer"] = plan.pre_tokenizer;
  json["post_processor"] = post_processor(plan);
  json["decoder"] = plan.decoder;
  json["model"] = std::move(model);
  return json.dump(2) + "\n";
}

// Without a limit of its length Transformers would warn of long texts.
std::string config_json(const TokenizerPlan& plan) {
  OrderedJson json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"model_max_length", 1e30},
                      {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, token] : plan.roles) json[role] = token;
  return json.dump(2) + "\n";
}

}  // namespace

TrainedTokenizer train_tokenizer(std::span<const CountedWord> words,
                                 const TokenizerTrainingOptions& options, const TokenizerPlan& plan,
                                 ThreadPool& threads,
                                 const std::function<void(std::int64_t)>& shown) {
  TrainedTokenizer trained;
  trained.config = config_json(plan);
  if (plan.algorithm == VocabularyAlgorithm::kUnigram) {
    const std::vector<ScoredPiece> pieces = train_unigram(
        words, {.vocabulary_size = options.vocab_size, .first_pieces = plan.first_pieces()},
        threads, shown);
    trained.pieces = std::ssize(pieces);
    trained.json = tokenizer_json(plan, unigram_model(plan, pieces));
    return trained;
  }
  const bool is_wordpiece = plan.algorithm == VocabularyAlgorithm::kWordPiece;
  const BpeTraining training{
      .vocabulary_size = options.vocab_size,
      .min_frequency = options.min_frequency,
      .first_pieces = plan.first_pieces(),
      .byte_level = plan.algorithm == VocabularyAlgorithm::kByteLevelBpe,
      .limit_alphabet = options.limit_alphabet,
      .continuing_prefix = is_wordpiece ? "##" : "",
  };
  const TrainedBpe bpe = train_bpe(words, training, threads, shown);
  trained.pieces = std::ssize(bpe.pieces);
  trained.merges = std::ssize(bpe.merges);
  trained.json =
      tokenizer_json(plan, is_wordpiece ? wordpiece_model(plan, bpe) : bpe_model(plan, bpe));
  return trained;
}

}  // namespace piton
