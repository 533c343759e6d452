#include "text/models/wordpiece_model.h"

#include <algorithm>

#include "base/error.h"

namespace piton {

WordPieceModel::WordPieceModel(const WordPieceFacts& facts, const std::string& where)
    : max_characters_(facts.max_characters) {
  vocabulary_.add_all(facts.vocabulary, where);
  const auto unknown = vocabulary_.id_of(facts.unknown);
  if (!unknown) {
    throw Error(Fault::kData, "{}: the unknown token \"{}\" is not in the vocabulary; add it",
                where, facts.unknown);
  }
  unknown_ = *unknown;
  for (const auto& [piece, id] : facts.vocabulary) {
    // Of equal pieces the vocabulary keeps the first; so does the trie.
    if (!piece.empty()) trie_.add(piece, *vocabulary_.id_of(piece));
  }
  continuing_ = trie_.walk(Trie::kRoot, facts.continuing_prefix);
}

void WordPieceModel::encode(std::string_view word, Scratch&, std::vector<std::int32_t>& out) const {
  const auto continues = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
  };
  const auto size = static_cast<std::int64_t>(word.size());
  if (size > max_characters_ &&
      size - std::count_if(word.begin(), word.end(), continues) > max_characters_) {
    out.push_back(unknown_);
    return;
  }
  const std::size_t before = out.size();
  std::size_t at = 0;
  while (at < word.size()) {
    std::int32_t node = at == 0 ? Trie::kRoot : continuing_;
    std::int32_t best = Trie::kNone;
    std::size_t best_end = at;
    for (std::size_t end = at; end < word.size() && node != Trie::kNone;) {
      node = trie_.step(node, word[end++]);
      if (node != Trie::kNone && trie_.value(node) != Trie::kNone) {
        best = trie_.value(node);
        best_end = end;
      }
    }
    if (best == Trie::kNone) {
      out.resize(before);
      out.push_back(unknown_);
      return;
    }
    out.push_back(best);
    at = best_end;
  }
}

WordLevelModel::WordLevelModel(const std::vector<std::pair<std::string, std::int32_t>>& vocabulary,
                               const std::string& unknown, const std::string& where) {
  vocabulary_.add_all(vocabulary, where);
  unknown_ = vocabulary_.id_of(unknown);
}

void WordLevelModel::encode(std::string_view word, Scratch&, std::vector<std::int32_t>& out) const {
  const auto id = vocabulary_.id_of(word);
  if (id) {
    out.push_back(*id);
  } else if (unknown_) {
    out.push_back(*unknown_);
  }
}

}  // namespace piton
