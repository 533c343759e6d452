// Tokenizer folders as published with models: vocabulary files plus tokenizer_config.json,
// special_tokens_map.json and added_tokens.json, which name the special tokens and tell which of
// them are added around a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/steps/added_tokens.h"
#include "text/tokenizer.h"

namespace piton {

// Largest size of a vocabulary file, in bytes. Enough for 16 M pieces.
inline constexpr std::int64_t kVocabularyFileLimit = std::int64_t{1} << 30;

// Settings from the configuration files next to a vocabulary.
struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; "" if not given
  std::optional<std::string> bos, eos, pad, unk, cls, sep, mask;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  bool add_prefix_space = false;
  bool do_lower_case = true;
  std::optional<bool> strip_accents;
  bool chinese_characters = true;
  std::vector<AddedToken> added;  // those with an id
  std::string where;              // the folder, for messages

  // The settings that may change ids, as JSON; "" if all have their defaults. Part of the
  // tokenizer's content_hash().
  std::string fingerprint() const;
};

// Reads the configuration files of `folder`, all of which are optional. Throws Error(kData) if one
// is malformed.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);
// The same with the contents of files by their names. `where`: for messages.
TokenizerConfig read_tokenizer_config(const std::map<std::string, std::string>& files,
                                      const std::string& where);

// Opens a folder, or one file of it. `prefer_sentencepiece` looks for tokenizer.model before
// tokenizer.json. Throws Error(kData) with the list of supported files if it finds none.
std::unique_ptr<Tokenizer> open_tokenizer_folder(const std::filesystem::path& path,
                                                 bool prefer_sentencepiece);

// The tokenizer of a folder with these files, given by name and content, one of which is
// tokenizer.json or tokenizer.model: of the same ids and the same content_hash(). `where`: what the
// files are in, for messages. Throws Error(kData) as open_tokenizer_folder().
std::unique_ptr<Tokenizer> open_tokenizer_texts(const std::map<std::string, std::string>& files,
                                                const std::string& where);

}  // namespace piton
