#include <algorithm>
#include <utility>

#include "base/error.h"
#include "gguf/vocabulary/vocabulary.h"

namespace piton {
namespace {

constexpr const char* kModelKey = "tokenizer.ggml.model";
constexpr const char* kPreKey = "tokenizer.ggml.pre";
constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kKindsKey = "tokenizer.ggml.token_type";
constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr const char* kMergesKey = "tokenizer.ggml.merges";
constexpr const char* kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";

using Ids = std::optional<std::int32_t> GgufVocabulary::*;
constexpr std::pair<const char*, Ids> kIdKeys[] = {
    {"tokenizer.ggml.bos_token_id", &GgufVocabulary::bos},
    {"tokenizer.ggml.eos_token_id", &GgufVocabulary::eos},
    {"tokenizer.ggml.unknown_token_id", &GgufVocabulary::unk},
    {"tokenizer.ggml.padding_token_id", &GgufVocabulary::pad},
    {"tokenizer.ggml.eot_token_id", &GgufVocabulary::eot},
    {"tokenizer.ggml.eom_token_id", &GgufVocabulary::eom},
};
using Flags = std::optional<bool> GgufVocabulary::*;
constexpr std::pair<const char*, Flags> kFlagKeys[] = {
    {"tokenizer.ggml.add_bos_token", &GgufVocabulary::add_bos},
    {"tokenizer.ggml.add_eos_token", &GgufVocabulary::add_eos},
    {"tokenizer.ggml.add_space_prefix", &GgufVocabulary::add_space},
    {"tokenizer.ggml.remove_extra_whitespaces", &GgufVocabulary::remove_extra_spaces},
};

class VocabularyReader {
 public:
  VocabularyReader(const GgufHeader& header, const std::string& where)
      : header_(header), where_(where) {}

  std::string text(const char* key, const std::string& otherwise) const {
    const GgufValue* value = header_.find(key);
    if (value == nullptr) return otherwise;
    if (value->kind != GgufKind::kString) wrong(key, "a word");
    return value->text;
  }
  std::vector<std::string> texts(const char* key, bool needed) const {
    const GgufValue* value = header_.find(key);
    if (value == nullptr && !needed) return {};
    if (value == nullptr || value->kind != GgufKind::kArray || value->element != GgufKind::kString)
      wrong(key, "a list of words");
    return value->texts;
  }
  // A list of as many numbers as there are tokens; empty where it is not there.
  template <typename T>
  std::vector<T> numbers(const char* key, std::size_t tokens,
                         std::vector<T> (GgufValue::*elements)() const) const {
    const GgufValue* value = header_.find(key);
    if (value == nullptr) return {};
    std::vector<T> list = (value->*elements)();
    if (list.size() != tokens) wrong(key, fmt::format("a list of {} numbers", tokens));
    return list;
  }
  std::optional<std::int32_t> id(const char* key, std::size_t tokens) const {
    const GgufValue* value = header_.find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_integer()) wrong(key, "a number");
    // Files say "none" by -1 and by 4294967295.
    const std::int64_t id = value->integer();
    if (id < 0 || id == 0xFFFFFFFF) return std::nullopt;
    if (id >= static_cast<std::int64_t>(tokens)) wrong(key, fmt::format("an id below {}", tokens));
    return static_cast<std::int32_t>(id);
  }
  std::optional<bool> flag(const char* key) const {
    const GgufValue* value = header_.find(key);
    if (value == nullptr) return std::nullopt;
    if (value->kind != GgufKind::kBool) wrong(key, "true or false");
    return value->truth();
  }
  [[noreturn]] void wrong(const char* key, const std::string& wanted) const {
    throw Error(Fault::kData, "{}: {}: wanted {}", where_, key, wanted);
  }

 private:
  const GgufHeader& header_;
  const std::string& where_;
};

TokenKind kind_of_token(std::int64_t number) {
  return number >= 1 && number <= 6 ? static_cast<TokenKind>(number) : TokenKind::kNormal;
}

}  // namespace

std::vector<GgufEntry> vocabulary_entries(const GgufVocabulary& vocabulary) {
  std::vector<GgufEntry> entries = {{kModelKey, GgufValue::string(vocabulary.model)}};
  if (vocabulary.model == "none") return entries;
  if (!vocabulary.pre.empty()) entries.push_back({kPreKey, GgufValue::string(vocabulary.pre)});
  entries.push_back({kTokensKey, GgufValue::strings(vocabulary.tokens)});
  if (!vocabulary.scores.empty())
    entries.push_back({kScoresKey, GgufValue::numbers(std::span(vocabulary.scores))});
  std::vector<std::int32_t> kinds;
  for (const TokenKind kind : vocabulary.kinds) kinds.push_back(static_cast<std::int32_t>(kind));
  entries.push_back({kKindsKey, GgufValue::numbers(std::span<const std::int32_t>(kinds))});
  if (vocabulary.model == "gpt2")
    entries.push_back({kMergesKey, GgufValue::strings(vocabulary.merges)});
  for (const auto& [key, id] : kIdKeys) {
    if (vocabulary.*id) entries.push_back({key, GgufValue::u32(*(vocabulary.*id))});
  }
  for (const auto& [key, flag] : kFlagKeys) {
    if (vocabulary.*flag) entries.push_back({key, GgufValue::boolean(*(vocabulary.*flag))});
  }
  if (!vocabulary.charsmap.empty())
    entries.push_back({kCharsmapKey, GgufValue::bytes(vocabulary.charsmap)});
  if (!vocabulary.chat_template.empty())
    entries.push_back({kGgufTemplateKey, GgufValue::string(vocabulary.chat_template)});
  return entries;
}

GgufVocabulary read_gguf_vocabulary(const GgufHeader& header, const std::string& where) {
  const VocabularyReader reader(header, where);
  GgufVocabulary vocabulary{.model = reader.text(kModelKey, "none")};
  if (vocabulary.model == "none" || vocabulary.model == "no_vocab") return {};
  vocabulary.pre = reader.text(kPreKey, "");
  vocabulary.tokens = reader.texts(kTokensKey, true);
  const std::size_t tokens = vocabulary.tokens.size();
  for (const std::int64_t kind : reader.numbers(kKindsKey, tokens, &GgufValue::integers))
    vocabulary.kinds.push_back(kind_of_token(kind));
  if (vocabulary.kinds.empty()) vocabulary.kinds.assign(tokens, TokenKind::kNormal);
  const auto numbers = static_cast<std::vector<double> (GgufValue::*)() const>(&GgufValue::numbers);
  for (const double score : reader.numbers(kScoresKey, tokens, numbers))
    vocabulary.scores.push_back(static_cast<float>(score));
  vocabulary.merges = reader.texts(kMergesKey, false);
  for (const auto& [key, id] : kIdKeys) vocabulary.*id = reader.id(key, tokens);
  for (const auto& [key, flag] : kFlagKeys) vocabulary.*flag = reader.flag(key);
  const GgufValue* charsmap = header.find(kCharsmapKey);
  if (charsmap != nullptr && charsmap->kind == GgufKind::kArray)
    vocabulary.charsmap = charsmap->text;
  vocabulary.chat_template = reader.text(kGgufTemplateKey, "");
  return vocabulary;
}

}  // namespace piton
