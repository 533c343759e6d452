// PREFIX.json next to PREFIX.bin and PREFIX.idx: how a corpus was made. The other two files have
// only numbers, and the ids of one tokenizer are meaningless for another.
//
//   {"tokenizer": {"name": ..., "hash": ..., "vocabulary": ...}, "options": {...},
//    "chat_template": ..., "documents": ..., "tokens": ..., "piton": "0.1.0"}
//
// Corpora of other programs have no card.
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
  std::map<std::string, std::string> options;  // options of preprocess that determine the ids
  // Jinja that renders conversations as they are in the corpus; "": the model's own, or none.
  std::string chat_template = {};
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::string made_by;  // version of piton
};

// Writes the whole card or nothing. Throws Error(kData) if it cannot be written.
void write_card(const std::string& prefix, const CorpusCard& card);

// Returns std::nullopt if there is no card, or if PREFIX.json is another kind of file. Throws
// Error(kData) if it is damaged.
std::optional<CorpusCard> read_card(const std::string& prefix);

// Checks that a run can read a corpus. Throws Error(kData) if the card names another tokenizer than
// `tokenizer_hash` ("" for a run without one) or belongs to another corpus. Returns a line for the
// log if there is no card, else "".
std::string check_card(const std::string& prefix, std::int64_t tokens,
                       const std::string& tokenizer_name, const std::string& tokenizer_hash);

}  // namespace piton
