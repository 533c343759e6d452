// A tokenizer's folder, as models are published: the vocabulary's files and beside them
// tokenizer_config.json, special_tokens_map.json and added_tokens.json, which name the special
// tokens and what is put around a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/steps/added_tokens.h"
#include "text/tokenizer.h"

namespace piton {

// Of a file of a vocabulary: 16 M pieces fit; a larger one is something else.
inline constexpr std::int64_t kVocabularyFileLimit = std::int64_t{1} << 30;

// What the configurations beside a vocabulary say.
struct TokenizerConfig {
  std::string tokenizer_class;  // without "Fast"; "" if nothing says
  std::optional<std::string> bos, eos, pad, unk, cls, sep, mask;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  bool add_prefix_space = false;
  bool do_lower_case = true;
  std::optional<bool> strip_accents;
  bool chinese_characters = true;
  std::vector<AddedToken> added;  // those with an id
  std::string where;              // the folder, for messages

  // What of the above may change ids, as text; "" if the files say nothing. It is part of a
  // tokenizer's content_hash().
  std::string fingerprint() const;
};

// Reads what is there of the three files; none is needed. Throws Error(kData) on malformed ones.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

// Opens a folder, or one file of it. `prefer_sentencepiece` looks for tokenizer.model before
// tokenizer.json. Throws Error(kData) if nothing there is a tokenizer, listing what was looked for.
std::unique_ptr<Tokenizer> open_tokenizer_folder(const std::filesystem::path& path,
                                                 bool prefer_sentencepiece);

}  // namespace piton
