#include "text/files/tokenizer_folder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/hash.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_json.h"
#include "text/files/vocabulary_files.h"
#include "text/sentencepiece/sentencepiece_tokenizer.h"
#include "text/steps/pipeline_tokenizer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns the first of `names` that is a file in `folder`; "" if none is.
fs::path first_file(const fs::path& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (is_file(folder / name)) return folder / name;
  }
  return {};
}

fs::path file_with_extension(const fs::path& folder, const char* extension) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == extension && is_file(entry.path()))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found.empty() ? fs::path() : found.front();
}

std::string hash_text(std::string_view text) {
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

// The hash of a vocabulary and its options.
std::string hash_with(const std::string& vocabulary_hash, const TokenizerConfig& config) {
  const std::string said = config.fingerprint();
  return said.empty() ? vocabulary_hash : hash_text(vocabulary_hash + said);
}

// Adds the settings of the configuration files to those of the vocabulary file.
void apply_config(const TokenizerConfig& config, TokenizerParts& parts) {
  parts.content_hash = hash_with(parts.content_hash, config);
  for (const AddedToken& token : config.added) {
    check_added_token(token, parts.model->vocabulary().size(), config.where);
    const auto same = std::find_if(parts.added.begin(), parts.added.end(),
                                   [&](const AddedToken& a) { return a.content == token.content; });
    if (same == parts.added.end()) {
      parts.added.push_back(token);
    } else {
      same->special = same->special || token.special;
    }
  }
  const auto id_of = [&](const std::optional<std::string>& name) -> std::optional<std::int32_t> {
    if (!name || name->empty()) return std::nullopt;
    for (const AddedToken& token : parts.added) {
      if (token.content == *name) return token.id;
    }
    return parts.model->vocabulary().id_of(*name);
  };
  const auto set = [&](const std::optional<std::string>& name, std::optional<std::int32_t>& id) {
    if (const auto found = id_of(name)) id = found;
  };
  SpecialIds& special = parts.special;
  set(config.bos, special.bos);
  set(config.eos, special.eos);
  set(config.pad, special.pad);
  set(config.unk, special.unk);
  set(config.cls, special.cls);
  set(config.sep, special.sep);
  set(config.mask, special.mask);
  if (config.eos && special.eos) special.eod = special.eos;
  for (const char* name : {"<|endoftext|>", "</s>", "<eos>", "[SEP]"}) {
    if (special.eod) break;
    special.eod = special.eos ? special.eos : id_of(std::string(name));
  }
  if (!special.pad) special.pad = special.eos;
  // Tokenizer classes of the LLaMA family set prefix and suffix from add_bos and add_eos.
  const bool rebuilds = config.tokenizer_class == "LlamaTokenizer" ||
                        config.tokenizer_class == "CodeLlamaTokenizer" ||
                        config.tokenizer_class == "GemmaTokenizer";
  if (rebuilds && (config.add_bos || config.add_eos)) {
    parts.prefix.clear();
    parts.suffix.clear();
    if (config.add_bos.value_or(true) && special.bos) parts.prefix = {*special.bos};
    if (config.add_eos.value_or(false) && special.eos) parts.suffix = {*special.eos};
  }
}

// Whether nothing was added to byte_tokenizer_files().
bool is_byte_tokenizer(const std::string& text, const TokenizerConfig& config) {
  constexpr std::size_t kLongest = 16384;
  const bool as_written = !config.bos && !config.pad && !config.unk && !config.cls && !config.sep &&
                          !config.mask && config.added.empty() &&
                          config.eos == ByteTokenizer().piece(ByteTokenizer::kEndOfDocument);
  return as_written && text.size() < kLongest && text == byte_tokenizer_files().tokenizer_json;
}

std::unique_ptr<Tokenizer> open_json(const std::string& text, const std::string& where,
                                     const TokenizerConfig& config) {
  if (is_byte_tokenizer(text, config)) return std::make_unique<ByteTokenizer>();
  TokenizerParts parts = read_tokenizer_json(text, where);
  apply_config(config, parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> open_json(const fs::path& file, const TokenizerConfig& config) {
  return open_json(read_text_file(file, kVocabularyFileLimit), file.string(), config);
}

std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& bytes, const std::string& where,
                                              const TokenizerConfig& config) {
  SentencePieceFacts facts = read_sentencepiece_model(bytes, where);
  SentencePieceTokenizer::Settings settings;
  settings.add_bos = config.add_bos.value_or(config.tokenizer_class != "T5Tokenizer");
  settings.add_eos = config.add_eos.value_or(config.tokenizer_class == "T5Tokenizer");
  const auto pieces = static_cast<std::int32_t>(facts.pieces.size());
  for (const AddedToken& token : config.added) {
    if (token.id >= pieces) settings.added.push_back(token);
  }
  return std::make_unique<SentencePieceTokenizer>(std::move(facts), std::move(settings),
                                                  hash_with(hash_text(bytes), config), where);
}

std::unique_ptr<Tokenizer> open_sentencepiece(const fs::path& file, const TokenizerConfig& config) {
  return open_sentencepiece(read_text_file(file, kVocabularyFileLimit), file.string(), config);
}

std::unique_ptr<Tokenizer> open_byte_bpe(const fs::path& vocabulary, const fs::path& merges,
                                         const TokenizerConfig& config) {
  ByteBpeFamily family;
  family.add_prefix_space = config.add_prefix_space;
  if (config.tokenizer_class == "Qwen2Tokenizer") {
    family.scanner = {Scanner::Kind::kCl100k, 1};
    family.nfc = true;
  }
  TokenizerParts parts = read_byte_bpe(read_text_file(vocabulary, kVocabularyFileLimit),
                                       read_text_file(merges, kVocabularyFileLimit), family,
                                       vocabulary.string(), merges.string());
  apply_config(config, parts);
  if (config.add_bos.value_or(false) && parts.special.bos) parts.prefix = {*parts.special.bos};
  if (config.add_eos.value_or(false) && parts.special.eos) parts.suffix = {*parts.special.eos};
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> open_word_piece(const fs::path& file, const TokenizerConfig& config) {
  WordPieceFamily family;
  family.lowercase = config.do_lower_case;
  family.strip_accents = config.strip_accents.value_or(config.do_lower_case);
  family.chinese_characters = config.chinese_characters;
  TokenizerParts parts =
      read_word_piece(read_text_file(file, kVocabularyFileLimit), family, file.string());
  apply_config(config, parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> open_tiktoken(const fs::path& file, const TokenizerConfig& config) {
  // The first Qwen models have these names; they split numbers into single digits.
  const bool qwen = config.tokenizer_class == "QWenTokenizer" || file.filename() == "qwen.tiktoken";
  TokenizerParts parts = read_tiktoken(read_text_file(file, kVocabularyFileLimit),
                                       {Scanner::Kind::kCl100k, qwen ? 1 : 3}, file.string());
  if (qwen) parts.normalizer = make_normal_form(NormalForm::kNfc);
  apply_config(config, parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::unique_ptr<Tokenizer> open_file(const fs::path& file, const TokenizerConfig& config) {
  const std::string extension = file.extension().string();
  if (extension == ".model") return open_sentencepiece(file, config);
  if (extension == ".tiktoken") return open_tiktoken(file, config);
  if (extension == ".txt") return open_word_piece(file, config);
  if (extension == ".json") return open_json(file, config);
  throw Error(Fault::kData,
              "{}: unknown kind of tokenizer: got the extension \"{}\", wanted .json, .model, "
              ".txt or .tiktoken; give the folder",
              file.string(), extension);
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer_folder(const fs::path& path, bool prefer_sentencepiece) {
  if (is_file(path)) return open_file(path, read_tokenizer_config(path.parent_path()));
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw Error(Fault::kData,
                "{}: no such file or folder; --tokenizer-name-or-path needs a folder with "
                "tokenizer.json or tokenizer.model (nothing is fetched from the network)",
                path.string());
  }
  const TokenizerConfig config = read_tokenizer_config(path);
  const fs::path json = first_file(path, {"tokenizer.json"});
  const fs::path model = first_file(path, {"tokenizer.model", "spiece.model"});
  if (!model.empty() && (prefer_sentencepiece || json.empty())) {
    return open_sentencepiece(model, config);
  }
  if (!json.empty()) return open_json(json, config);
  const fs::path vocabulary = first_file(path, {"vocab.json", "encoder.json"});
  const fs::path merges = first_file(path, {"merges.txt", "vocab.bpe"});
  if (!vocabulary.empty() && !merges.empty()) return open_byte_bpe(vocabulary, merges, config);
  if (const fs::path txt = first_file(path, {"vocab.txt"}); !txt.empty()) {
    return open_word_piece(txt, config);
  }
  if (const fs::path ranks = file_with_extension(path, ".tiktoken"); !ranks.empty()) {
    return open_tiktoken(ranks, config);
  }
  throw Error(Fault::kData,
              "{}: no tokenizer in the folder: wanted tokenizer.json, tokenizer.model, vocab.json "
              "with merges.txt, vocab.txt or *.tiktoken",
              path.string());
}

std::unique_ptr<Tokenizer> open_tokenizer_texts(const std::map<std::string, std::string>& files,
                                                const std::string& where) {
  const TokenizerConfig config = read_tokenizer_config(files, where);
  if (const auto json = files.find("tokenizer.json"); json != files.end())
    return open_json(json->second, where, config);
  const auto model = files.find("tokenizer.model");
  if (model != files.end()) return open_sentencepiece(model->second, where, config);
  throw Error(Fault::kData, "{}: no tokenizer in it: wanted tokenizer.json or tokenizer.model",
              where);
}

}  // namespace piton
