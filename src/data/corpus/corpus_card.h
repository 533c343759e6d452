// PREFIX.json beside PREFIX.bin and PREFIX.idx: what made a corpus. The two files hold numbers
// alone, and the ids of one tokenizer are nonsense under another.
//
//   {"tokenizer": {"name": ..., "hash": ..., "vocabulary": ...}, "options": {...},
//    "documents": ..., "tokens": ..., "piton": "0.1.0"}
//
// Corpora of other programs have none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace piton {

struct CorpusCard {
  std::string tokenizer_name;
  std::string tokenizer_hash;                  // Tokenizer::content_hash()
  std::int64_t vocabulary = 0;                 // ids of the tokenizer
  std::map<std::string, std::string> options;  // of preprocess, those that decide the ids
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::string made_by;  // version of piton
};

// Whole or not at all. Throws Error(kData) if it cannot be written.
void write_card(const std::string& prefix, const CorpusCard& card);

// nullopt where there is none, or where PREFIX.json is another kind of file. Throws Error(kData) if
// it is damaged.
std::optional<CorpusCard> read_card(const std::string& prefix);

// What a run should say or refuse about a corpus that it reads: throws Error(kData) where the card
// names another tokenizer than `tokenizer_hash` ("" for a run without one) or is of another corpus;
// returns a line for the log where there is no card, else "".
std::string check_card(const std::string& prefix, std::int64_t tokens,
                       const std::string& tokenizer_name, const std::string& tokenizer_hash);

}  // namespace piton
