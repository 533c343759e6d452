#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "gguf/vocabulary/vocabulary.h"
#include "gguf/vocabulary/word_cuts.h"
#include "text/chat/chat_template_files.h"
#include "text/files/base64.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/json_reading.h"
#include "text/files/tokenizer_folder.h"
#include "text/files/tokenizer_json.h"
#include "text/files/vocabulary_files.h"
#include "text/sentencepiece/sentencepiece_model.h"
#include "text/unicode/byte_level.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Of tokens that no text leads to.
constexpr float kLowestScore = -1e6F;

// Files of a tokenizer, as far as they are there.
struct TokenizerFiles {
  fs::path folder;
  fs::path json, model, vocabulary, merges;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// In the order in which open_tokenizer() looks for them.
TokenizerFiles find_files(const TokenizerOptions& options) {
  TokenizerFiles files;
  const fs::path path =
      options.name_or_path.empty() ? fs::path(options.vocab_file) : fs::path(options.name_or_path);
  if (!options.vocab_file.empty() && !options.merge_file.empty()) {
    return {.folder = path.parent_path(),
            .vocabulary = options.vocab_file,
            .merges = options.merge_file};
  }
  const bool one_file = is_there(path);
  files.folder = one_file ? path.parent_path() : path;
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      const fs::path file = files.folder / name;
      if (is_there(file) && (!one_file || file.extension() == path.extension())) return file;
    }
    return fs::path();
  };
  files.json = one_file && path.extension() == ".json" ? path : first({"tokenizer.json"});
  files.model =
      one_file && path.extension() == ".model" ? path : first({"tokenizer.model", "spiece.model"});
  files.vocabulary = first({"vocab.json", "encoder.json"});
  files.merges = one_file ? fs::path() : first({"merges.txt", "vocab.bpe"});
  if (options.not_use_fast && !files.model.empty()) files.json.clear();
  return files;
}

[[noreturn]] void refuse_tokenizer(const fs::path& where, const std::string& what) {
  throw Error(Fault::kData, "{}: {}, which no GGUF file can say", where.string(), what);
}

// Which ids are around a text, seen at one that is encoded.
void set_frame(const Tokenizer& tokenizer, GgufVocabulary& vocabulary) {
  const SpecialIds& special = tokenizer.special();
  vocabulary.bos = special.bos;
  vocabulary.eos = special.eos ? special.eos : special.eod;
  vocabulary.unk = special.unk;
  vocabulary.pad = special.pad;
  const std::vector<std::int32_t> framed = tokenizer.encode("a", {.add_special_tokens = true});
  const auto begins = [&](std::optional<std::int32_t> id) {
    return id && !framed.empty() && framed.front() == *id;
  };
  vocabulary.add_bos = begins(special.bos);
  vocabulary.add_eos = framed.size() > 1 && vocabulary.eos && framed.back() == *vocabulary.eos;
}

// Tokens by their names; special ones are control tokens, others that were added user-defined.
void set_tokens(const Tokenizer& tokenizer, const std::vector<AddedToken>& added, std::int64_t rows,
                GgufVocabulary& vocabulary) {
  if (tokenizer.vocabulary_size() > rows) {
    throw Error(Fault::kData, "the tokenizer has {} ids, the model's table {} rows",
                tokenizer.vocabulary_size(), rows);
  }
  std::set<std::int32_t> user_defined;
  for (const AddedToken& token : added) user_defined.insert(token.id);
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    std::string piece = i < tokenizer.vocabulary_size() ? tokenizer.piece(id) : "";
    TokenKind kind = TokenKind::kNormal;
    if (piece.empty() || !seen.insert(piece).second) {
      piece = fmt::format("[PAD{}]", id);
      seen.insert(piece);
      kind = TokenKind::kUnused;
    } else if (tokenizer.is_special(id)) {
      kind = TokenKind::kControl;
    } else if (user_defined.contains(id)) {
      kind = TokenKind::kUserDefined;
    }
    vocabulary.tokens.push_back(std::move(piece));
    vocabulary.kinds.push_back(kind);
  }
}

// The token of what no piece spells. Readers of pieces need one.
void set_unknown(std::optional<std::int32_t> id, const fs::path& where,
                 GgufVocabulary& vocabulary) {
  if (!id || *id < 0 || *id >= std::ssize(vocabulary.kinds))
    refuse_tokenizer(where, "it has no token of unknown text");
  vocabulary.kinds[static_cast<std::size_t>(*id)] = TokenKind::kUnknown;
  vocabulary.unk = id;
}

void set_byte_tokens(GgufVocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
    if (byte) vocabulary.kinds[i] = TokenKind::kByte;
  }
}

void set_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                const fs::path& where, GgufVocabulary& vocabulary) {
  for (const auto& [left, right] : merges) {
    if (left.find(' ') != left.npos || right.find(' ') != right.npos)
      refuse_tokenizer(where,
                       fmt::format("its merge of \"{}\" and \"{}\" has a space", left, right));
    vocabulary.merges.push_back(left + " " + right);
  }
}

// 256 bytes and what ends a document: byte-level BPE without merges.
GgufVocabulary byte_vocabulary(const Tokenizer& tokenizer, std::int64_t rows) {
  GgufVocabulary vocabulary{.model = "gpt2", .pre = "gpt-2"};
  set_tokens(tokenizer, {}, rows, vocabulary);
  const ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    const auto index = static_cast<std::size_t>(byte);
    vocabulary.tokens[index] = alphabet.spell(std::string(1, static_cast<char>(byte)));
    vocabulary.kinds[index] = TokenKind::kNormal;
  }
  return vocabulary;
}

void set_cut(const WordCut& cut, const fs::path& where, GgufVocabulary& vocabulary) {
  vocabulary.pre = word_cut_name(cut);
  if (vocabulary.pre.empty()) {
    WordCut other = cut;  // llama.cpp normalizes nothing
    other.nfc = !cut.nfc;
    vocabulary.pre = word_cut_name(other);
  }
  if (vocabulary.pre.empty()) refuse_tokenizer(where, "its words are cut as no pre-tokenizer does");
}

GgufVocabulary byte_bpe_of_files(const TokenizerFiles& files, const Tokenizer& tokenizer,
                                 std::int64_t rows) {
  GgufVocabulary vocabulary{.model = "gpt2"};
  const TokenizerConfig config = read_tokenizer_config(files.folder);
  const bool qwen = config.tokenizer_class == "Qwen2Tokenizer";
  const Scanner::Kind kind = qwen ? Scanner::Kind::kCl100k : Scanner::Kind::kGpt2;
  if (config.add_prefix_space) refuse_tokenizer(files.vocabulary, "it puts a space before a text");
  set_cut({{kind, qwen ? 1 : 0}, false, qwen}, files.vocabulary, vocabulary);
  set_tokens(tokenizer, config.added, rows, vocabulary);
  set_merges(
      read_merges_txt(read_text_file(files.merges, kVocabularyFileLimit), files.merges.string()),
      files.merges, vocabulary);
  return vocabulary;
}

std::vector<AddedToken> added_of(const TokenizerFiles& files, const TokenizerParts& parts) {
  std::vector<AddedToken> added = parts.added;
  for (AddedToken& token : read_tokenizer_config(files.folder).added)
    added.push_back(std::move(token));
  return added;
}

// The normalizer or pre-tokenizer with its parts, if it is a sequence.
std::vector<const Json*> steps_of(const Json& json, const char* step, const std::string& where) {
  const Json& outer = field(json, step, where);
  if (!outer.is_object()) return {};
  const char* inner = std::string_view(step) == "normalizer" ? "normalizers" : "pretokenizers";
  if (!outer.contains(inner) || !outer[inner].is_array()) return {&outer};
  std::vector<const Json*> steps;
  for (const Json& one : outer[inner]) {
    if (one.is_object()) steps.push_back(&one);
  }
  return steps;
}

// Whether a text gets a space in front: a normalizer that prepends "▁", or a Metaspace that does.
bool puts_space_before(const Json& json, const std::string& where) {
  const auto has = [&](const char* step, const std::string& type, auto&& wanted) {
    return std::ranges::any_of(steps_of(json, step, where), [&](const Json* one) {
      return text_field(*one, "type", where) == type && wanted(*one);
    });
  };
  return has("normalizer", "Prepend", [](const Json&) { return true; }) ||
         has("pre_tokenizer", "Metaspace", [&](const Json& step) {
           return text_field(step, "prepend_scheme", where, "always") != "never" &&
                  bool_field(step, "add_prefix_space", where, true);
         });
}

// Each piece by the merge that makes it first: so llama.cpp, which merges the pair of the best
// score, merges by rank.
std::vector<float> scores_of_merges(
    const GgufVocabulary& vocabulary,
    const std::vector<std::pair<std::string, std::string>>& merges) {
  std::unordered_map<std::string, float> ranks;
  float rank = 0;
  for (const auto& [left, right] : merges) ranks.try_emplace(left + right, --rank);
  std::vector<float> scores;
  for (const std::string& token : vocabulary.tokens) {
    const auto found = ranks.find(token);
    scores.push_back(found == ranks.end() ? kLowestScore : found->second);
  }
  return scores;
}

// LLaMA's kind of BPE in a tokenizer.json: characters with "▁" for spaces, bytes as <0xNN>.
GgufVocabulary character_bpe(const Json& json, const TokenizerParts& parts,
                             const TokenizerFiles& files, const Tokenizer& tokenizer,
                             std::int64_t rows) {
  const std::string where = files.json.string();
  const Json& model = need_object(json, "model", where);
  if (!bool_field(model, "byte_fallback", where, false))
    refuse_tokenizer(files.json, "its vocabulary spells no bytes");
  GgufVocabulary vocabulary{.model = "llama", .pre = "default"};
  set_tokens(tokenizer, added_of(files, parts), rows, vocabulary);
  vocabulary.scores = scores_of_merges(vocabulary, read_json_merges(model, where));
  set_byte_tokens(vocabulary);
  const Json& unknown = field(model, "unk_token", where);
  set_unknown(
      unknown.is_string() ? tokenizer.id_of(unknown.get<std::string>()) : tokenizer.special().unk,
      files.json, vocabulary);
  vocabulary.add_space = puts_space_before(json, where);
  return vocabulary;
}

// The steps before the model of a Unigram, as SentencePiece's normalizer has them: a map of
// characters, and runs of spaces that become one.
void set_normalizer(const Json& json, const TokenizerFiles& files, GgufVocabulary& vocabulary) {
  const std::string where = files.json.string();
  bool one_space = false;
  for (const Json* step : steps_of(json, "normalizer", where)) {
    const std::string type = text_field(*step, "type", where);
    if (type == "Precompiled") {
      const auto bytes = decode_base64(text_field(*step, "precompiled_charsmap", where));
      if (!bytes) refuse_tokenizer(files.json, "its precompiled_charsmap is not base64");
      vocabulary.charsmap = *bytes;
    } else if (type == "Replace" || type == "Strip") {
      one_space = true;  // whether of spaces alone, the comparison of the two tells
    } else if (type != "Prepend") {
      refuse_tokenizer(files.json, fmt::format("it normalizes texts ({}) by no map", type));
    }
  }
  for (const Json* step : steps_of(json, "pre_tokenizer", where)) {
    const std::string type = text_field(*step, "type", where);
    one_space = one_space || type == "WhitespaceSplit";
    if (type != "WhitespaceSplit" && type != "Metaspace")
      refuse_tokenizer(files.json, fmt::format("its words are cut by {}", type));
  }
  vocabulary.remove_extra_spaces = one_space;
  vocabulary.add_space = puts_space_before(json, where);
}

// T5's kind of vocabulary in a tokenizer.json.
GgufVocabulary unigram(const Json& json, const TokenizerParts& parts, const TokenizerFiles& files,
                       const Tokenizer& tokenizer, std::int64_t rows) {
  const std::string where = files.json.string();
  const Json& model = need_object(json, "model", where);
  GgufVocabulary vocabulary{.model = "t5", .pre = "default"};
  set_tokens(tokenizer, added_of(files, parts), rows, vocabulary);
  vocabulary.scores.assign(vocabulary.tokens.size(), kLowestScore);
  const Json& pieces = need_array(model, "vocab", where);
  for (std::size_t i = 0; i < std::min(pieces.size(), vocabulary.scores.size()); ++i) {
    if (vocabulary.kinds[i] != TokenKind::kUnused)
      vocabulary.scores[i] = pieces[i].at(1).get<float>();
  }
  if (bool_field(model, "byte_fallback", where, false)) set_byte_tokens(vocabulary);
  const std::int64_t unknown = integer_field(model, "unk_id", where, -1);
  set_unknown(static_cast<std::int32_t>(unknown), files.json, vocabulary);
  set_normalizer(json, files, vocabulary);
  return vocabulary;
}

GgufVocabulary json_vocabulary(const TokenizerFiles& files, const Tokenizer& tokenizer,
                               std::int64_t rows) {
  const std::string where = files.json.string();
  const std::string text = read_text_file(files.json, kVocabularyFileLimit);
  const TokenizerParts parts = read_tokenizer_json(text, where);
  const Json json = parse_json(text, where);
  if (parts.name == "BPE") return character_bpe(json, parts, files, tokenizer, rows);
  if (parts.name == "Unigram") return unigram(json, parts, files, tokenizer, rows);
  if (!parts.byte_level) refuse_tokenizer(files.json, fmt::format("it is of kind {}", parts.name));
  const Json& normalizer = field(json, "normalizer", where);
  const std::string type = normalizer.is_null() ? "" : text_field(normalizer, "type", where);
  if (!type.empty() && type != "NFC")
    refuse_tokenizer(files.json, fmt::format("it normalizes texts ({})", type));
  if (!parts.scanner) refuse_tokenizer(files.json, "its words are cut as no pre-tokenizer does");
  const Json& model = need_object(json, "model", where);
  GgufVocabulary vocabulary{.model = "gpt2"};
  set_cut({*parts.scanner, bool_field(model, "ignore_merges", where, false), type == "NFC"},
          files.json, vocabulary);
  set_tokens(tokenizer, added_of(files, parts), rows, vocabulary);
  set_merges(read_json_merges(model, where), files.json, vocabulary);
  return vocabulary;
}

GgufVocabulary piece_vocabulary(const TokenizerFiles& files, const Tokenizer& tokenizer,
                                std::int64_t rows) {
  using Kind = SentencePieceFacts::Kind;
  const SentencePieceFacts facts = read_sentencepiece_model(
      read_text_file(files.model, kVocabularyFileLimit), files.model.string());
  if (facts.kind != Kind::kBpe && facts.kind != Kind::kUnigram)
    refuse_tokenizer(files.model, "it is a model of words or of characters");
  if (facts.whitespace_as_suffix) refuse_tokenizer(files.model, "its spaces are after words");
  const bool unigram = facts.kind == Kind::kUnigram;
  GgufVocabulary vocabulary{.model = unigram ? "t5" : "llama", .pre = "default"};
  set_tokens(tokenizer, read_tokenizer_config(files.folder).added, rows, vocabulary);
  vocabulary.scores.assign(vocabulary.tokens.size(), kLowestScore);
  for (std::size_t i = 0; i < std::min(facts.pieces.size(), vocabulary.tokens.size()); ++i) {
    vocabulary.scores[i] = facts.pieces[i].score;
    vocabulary.kinds[i] = static_cast<TokenKind>(facts.pieces[i].type);
  }
  vocabulary.add_space = facts.add_dummy_prefix;
  vocabulary.remove_extra_spaces = facts.remove_extra_whitespaces;
  if (unigram) vocabulary.charsmap = facts.charsmap;
  return vocabulary;
}

// LLaMA's tokenizers are published as tokenizer.json and tokenizer.model; the latter has the
// scores.
bool prefers_pieces(const TokenizerFiles& files) {
  if (files.model.empty() || files.json.empty()) return !files.model.empty();
  const std::string where = files.json.string();
  const Json json = parse_json(read_text_file(files.json, kVocabularyFileLimit), where);
  return bool_field(need_object(json, "model", where), "byte_fallback", where, false);
}

}  // namespace

GgufVocabulary vocabulary_of_files(const TokenizerOptions& options, const Tokenizer& tokenizer,
                                   std::int64_t rows) {
  GgufVocabulary vocabulary;
  const bool has_files = options.type != "ByteTokenizer";
  const TokenizerFiles files = has_files ? find_files(options) : TokenizerFiles{};
  if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
    vocabulary = byte_vocabulary(tokenizer, rows);
  } else if (prefers_pieces(files)) {
    vocabulary = piece_vocabulary(files, tokenizer, rows);
  } else if (!files.json.empty()) {
    vocabulary = json_vocabulary(files, tokenizer, rows);
  } else if (!files.vocabulary.empty() && !files.merges.empty()) {
    vocabulary = byte_bpe_of_files(files, tokenizer, rows);
  } else {
    refuse_tokenizer(files.folder, fmt::format("the tokenizer is of kind {}", tokenizer.name()));
  }
  if (has_files)
    vocabulary.chat_template = default_chat_template(read_chat_templates(files.folder));
  const std::optional<std::int32_t> unknown = vocabulary.unk;
  set_frame(tokenizer, vocabulary);
  if (unknown) vocabulary.unk = unknown;
  return vocabulary;
}

}  // namespace piton
