#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "gguf/vocabulary/vocabulary.h"
#include "gguf/vocabulary/word_cuts.h"
#include "text/files/json_reading.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kJsonFile = "tokenizer.json";
constexpr const char* kPiecesFile = "tokenizer.model";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kGenerationFile = "generation_config.json";

// The number of tokens without the padding rows at the end.
std::size_t used_tokens(const GgufVocabulary& vocabulary) {
  std::size_t used = vocabulary.tokens.size();
  while (used > 0 && vocabulary.kinds[used - 1] == TokenKind::kUnused) --used;
  return used;
}

bool is_added(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUserDefined;
}

// Where a file says nothing llama.cpp adds <s> to SentencePiece's BPE and to LLaMA-3's words, and
// </s> to T5's Unigram.
bool adds_bos(const GgufVocabulary& vocabulary) {
  return vocabulary.add_bos.value_or(vocabulary.model == "llama" || vocabulary.pre == "llama3" ||
                                     vocabulary.pre == "llama-v3" || vocabulary.pre == "llama-bpe");
}

bool adds_eos(const GgufVocabulary& vocabulary) {
  return vocabulary.add_eos.value_or(vocabulary.model == "t5");
}

// "<s> text </s>", as far as the vocabulary has these tokens.
OrderedJson frame_of(const GgufVocabulary& vocabulary) {
  OrderedJson single = OrderedJson::array();
  OrderedJson tokens = OrderedJson::object();
  const auto special = [&](std::int32_t id) {
    const std::string& name = vocabulary.tokens[static_cast<std::size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  if (adds_bos(vocabulary) && vocabulary.bos) special(*vocabulary.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (adds_eos(vocabulary) && vocabulary.eos) special(*vocabulary.eos);
  OrderedJson pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", tokens}};
}

OrderedJson words_of(const WordCut& cut) {
  const bool gpt2 = cut.scanner.kind == Scanner::Kind::kGpt2;
  const OrderedJson bytes = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", gpt2}};
  if (gpt2) return bytes;
  const OrderedJson split = {{"type", "Split"},
                             {"pattern", {{"Regex", cut.scanner.pattern()}}},
                             {"behavior", "Isolated"},
                             {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
}

// What is not UTF-8 cannot be in JSON.
std::string dump(const OrderedJson& json, const std::string& where) {
  try {
    return json.dump();
  } catch (const OrderedJson::type_error&) {
    throw Error(Fault::kData, "{}: its tokens are not UTF-8; name the tokenizer's own files",
                where);
  }
}

std::string tokenizer_json(const GgufVocabulary& vocabulary, const std::string& where) {
  const std::optional<WordCut> cut = word_cut(vocabulary.pre);
  if (!cut) {
    throw Error(Fault::kData,
                "{}: tokenizer.ggml.pre: words are cut as \"{}\" says, which Piton does not have; "
                "name the tokenizer's own files",
                where, vocabulary.pre.substr(0, 60));
  }
  OrderedJson::object_t pieces;  // of 100000, so without a search for each key
  OrderedJson added = OrderedJson::array();
  for (std::size_t id = 0; id < used_tokens(vocabulary); ++id) {
    const TokenKind kind = vocabulary.kinds[id];
    if (kind == TokenKind::kUnused) continue;
    if (!is_added(kind)) {
      pieces.push_back({vocabulary.tokens[id], id});
      continue;
    }
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kind == TokenKind::kControl}});
  }
  OrderedJson merges = OrderedJson::array();
  for (const std::string& merge : vocabulary.merges) {
    const std::size_t space = merge.find(' ');
    if (space == merge.npos || space == 0 || space + 1 == merge.size()) {
      throw Error(Fault::kData, "{}: tokenizer.ggml.merges: \"{}\" are no two pieces", where,
                  merge.substr(0, 60));
    }
    merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  OrderedJson json = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  json["added_tokens"] = std::move(added);
  json["normalizer"] = cut->nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson();
  json["pre_tokenizer"] = words_of(*cut);
  json["post_processor"] = frame_of(vocabulary);
  json["decoder"] = {{"type", "ByteLevel"},
                     {"add_prefix_space", true},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", cut->ignore_merges}};
  json["model"]["vocab"] = std::move(pieces);
  json["model"]["merges"] = std::move(merges);
  return dump(json, where);
}

// Fields of a protocol buffer.
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void put_integer(std::string& out, int field, std::uint64_t value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3);
  put_varint(out, value);
}

void put_text(std::string& out, int field, std::string_view value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 2);
  put_varint(out, value.size());
  out += value;
}

void put_float(std::string& out, int field, float value) {
  put_varint(out, static_cast<std::uint64_t>(field) << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int i = 0; i < 4; ++i) out += static_cast<char>(bits >> (8 * i));
}

// Fields as in text/sentencepiece/sentencepiece_model.h.
std::string pieces_file(const GgufVocabulary& vocabulary, const std::string& where) {
  if (vocabulary.scores.size() != vocabulary.tokens.size())
    throw Error(Fault::kData, "{}: tokenizer.ggml.scores: wanted a score for each token", where);
  // Some files, also of earlier versions of Piton, have it as a control token.
  std::optional<std::int32_t> unknown;
  if (std::ranges::find(vocabulary.kinds, TokenKind::kUnknown) == vocabulary.kinds.end()) {
    const auto named = std::ranges::find(vocabulary.tokens, "<unk>");
    unknown = vocabulary.unk;
    if (!unknown && named != vocabulary.tokens.end())
      unknown = static_cast<std::int32_t>(named - vocabulary.tokens.begin());
  }
  std::string out;
  bool bytes = false;
  for (std::size_t id = 0; id < used_tokens(vocabulary); ++id) {
    std::string piece;
    put_text(piece, 1, vocabulary.tokens[id]);
    put_float(piece, 2, vocabulary.scores[id]);
    const TokenKind kind = unknown && static_cast<std::size_t>(*unknown) == id
                               ? TokenKind::kUnknown
                               : vocabulary.kinds[id];
    put_integer(piece, 3, static_cast<std::uint64_t>(kind));
    put_text(out, 1, piece);
    bytes = bytes || vocabulary.kinds[id] == TokenKind::kByte;
  }
  const auto name = [&](std::optional<std::int32_t> id, const char* otherwise) {
    return id ? vocabulary.tokens[static_cast<std::size_t>(*id)] : std::string(otherwise);
  };
  const bool unigram = vocabulary.model == "t5";
  std::string training;
  put_integer(training, 3, unigram ? 1 : 2);
  put_integer(training, 35, bytes ? 1 : 0);
  put_text(training, 45, name(vocabulary.unk, "<unk>"));
  put_text(training, 46, name(vocabulary.bos, "<s>"));
  put_text(training, 47, name(vocabulary.eos, "</s>"));
  put_text(training, 48, name(vocabulary.pad, "<pad>"));
  put_text(out, 2, training);
  std::string normalizer;
  put_text(normalizer, 1, vocabulary.charsmap.empty() ? "identity" : "user_defined");
  put_text(normalizer, 2, vocabulary.charsmap);
  put_integer(normalizer, 3, vocabulary.add_space.value_or(true) ? 1 : 0);
  put_integer(normalizer, 4, vocabulary.remove_extra_spaces.value_or(unigram) ? 1 : 0);
  put_integer(normalizer, 5, 1);
  put_text(out, 3, normalizer);
  return out;
}

std::string config_file(const GgufVocabulary& vocabulary, const std::string& where) {
  const bool pieces = vocabulary.model != "gpt2";
  OrderedJson config = {{"tokenizer_class", pieces ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false}};
  const auto token = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) config[key] = vocabulary.tokens[static_cast<std::size_t>(*id)];
  };
  token("bos_token", vocabulary.bos);
  token("eos_token", vocabulary.eos);
  token("unk_token", vocabulary.unk);
  token("pad_token", vocabulary.pad);
  config["add_bos_token"] = adds_bos(vocabulary);
  config["add_eos_token"] = adds_eos(vocabulary);
  if (!vocabulary.chat_template.empty()) config["chat_template"] = vocabulary.chat_template;
  return dump(config, where);
}

// Where texts end, if that is at more ids than the tokenizer's end of text; "" if not.
std::string generation_file(const GgufVocabulary& vocabulary, const std::string& where) {
  if (!vocabulary.eot && !vocabulary.eom) return "";
  std::vector<std::int32_t> ends;
  for (const auto& id : {vocabulary.eos, vocabulary.eot, vocabulary.eom}) {
    if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
  }
  OrderedJson config = OrderedJson::object();
  if (vocabulary.bos) config["bos_token_id"] = *vocabulary.bos;
  config["eos_token_id"] = ends;
  if (vocabulary.pad) config["pad_token_id"] = *vocabulary.pad;
  return dump(config, where);
}

bool is_of_pieces(const GgufVocabulary& vocabulary, const std::string& where) {
  if (vocabulary.model == "gpt2") return false;
  if (vocabulary.model == "llama" || vocabulary.model == "t5") return true;
  throw Error(
      Fault::kData,
      "{}: tokenizer.ggml.model: got \"{}\", wanted gpt2, llama or t5; name the tokenizer's "
      "own files",
      where, vocabulary.model.substr(0, 60));
}

}  // namespace

std::map<std::string, std::string> files_of_vocabulary(const GgufVocabulary& vocabulary,
                                                       const std::string& where) {
  if (vocabulary.model == "none") return {};
  std::map<std::string, std::string> files;
  if (is_of_pieces(vocabulary, where)) {
    files[kPiecesFile] = pieces_file(vocabulary, where);
  } else {
    files[kJsonFile] = tokenizer_json(vocabulary, where);
  }
  files[kConfigFile] = config_file(vocabulary, where);
  const std::string generation = generation_file(vocabulary, where);
  if (!generation.empty()) files[kGenerationFile] = generation;
  return files;
}

}  // namespace piton
