#include "text/models/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// An unknown character scores this much below the worst piece, as in SentencePiece.
constexpr double kUnknownPenalty = 10.0;
constexpr std::int32_t kUnknownPiece = -1;

struct Node {
  double score = 0;
  std::int32_t piece = 0;
  std::uint32_t length = 0;  // of the last piece, in bytes; 0: not reached
};

}  // namespace

class UnigramModel::UnigramScratch final : public Scratch {
 public:
  std::vector<Node> nodes;
  std::vector<std::pair<std::size_t, std::int32_t>> path;  // (begin, piece), the last piece first
};

UnigramModel::UnigramModel(const UnigramFacts& facts, const std::string& where)
    : unknown_(facts.unknown),
      fuse_unknown_(facts.fuse_unknown),
      byte_fallback_(facts.byte_fallback) {
  if (facts.pieces.size() > static_cast<std::size_t>(PieceVocabulary::kMaxId)) {
    throw Error(Fault::kData,
                "{}: vocabulary: got {} pieces, wanted at most {}; is the file damaged?", where,
                facts.pieces.size(), PieceVocabulary::kMaxId);
  }
  double lowest = std::numeric_limits<double>::max();
  for (const auto& [piece, score] : facts.pieces) {
    if (!std::isfinite(score)) {
      throw Error(Fault::kData,
                  "{}: the score of piece {} (\"{}\") is not a finite number; fetch the file again",
                  where, scores_.size(), piece);
    }
    const auto id = static_cast<std::int32_t>(scores_.size());
    scores_.push_back(score);
    vocabulary_.add(piece, id);
    lowest = std::min(lowest, score);
  }
  // Of equal pieces, the one with the largest id is found.
  for (std::size_t id = scores_.size(); id-- > 0;) {
    if (!facts.pieces[id].first.empty()) {
      trie_.add(facts.pieces[id].first, static_cast<std::int32_t>(id));
    }
  }
  unknown_score_ = lowest - kUnknownPenalty;
  if (unknown_ && (*unknown_ < 0 || *unknown_ >= vocabulary_.size())) {
    throw Error(Fault::kData,
                "{}: unk_id is out of range: got {}, wanted 0 .. {}; fetch the file again", where,
                *unknown_, vocabulary_.size() - 1);
  }
  if (byte_fallback_) {
    byte_ids_.assign(256, -1);
    for (int byte = 0; byte < 256; ++byte) {
      if (const auto id = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte))) byte_ids_[byte] = *id;
    }
  }
}

std::unique_ptr<WordModel::Scratch> UnigramModel::make_scratch() const {
  return std::make_unique<UnigramScratch>();
}

void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& out) const {
  // A trie walk ends at the first mismatch; a hash would read all of a long text.
  if (const std::int32_t node = trie_.walk(Trie::kRoot, text);
      node != Trie::kNone && trie_.value(node) != Trie::kNone) {
    out.push_back(vocabulary_.id_of(text).value());
    return;
  }
  const auto known = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] >= 0; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), known)) {
    for (const char byte : text) out.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    return;
  }
  if (unknown_) out.push_back(*unknown_);
}

void UnigramModel::encode(std::string_view word, Scratch& scratch,
                          std::vector<std::int32_t>& out) const {
  auto& memory = static_cast<UnigramScratch&>(scratch);
  std::vector<Node>& nodes = memory.nodes;  // nodes[i]: the best path that ends before byte i
  nodes.assign(word.size() + 1, Node{});
  for (std::size_t at = 0; at < word.size();) {
    const double so_far = nodes[at].score;
    const std::size_t length = decode_utf8(word, at).length;
    bool covered = false;
    const auto offer = [&](std::size_t end, double score, std::int32_t piece) {
      Node& node = nodes[end];
      if (node.length != 0 && score <= node.score) return;
      node = {score, piece, static_cast<std::uint32_t>(end - at)};
    };
    std::size_t end = at;
    for (std::int32_t node = trie_.first(word[at]); node != Trie::kNone;
         node = end < word.size() ? trie_.step(node, word[end]) : Trie::kNone) {
      ++end;
      const std::int32_t piece = trie_.value(node);
      if (piece == Trie::kNone) continue;
      offer(end, scores_[static_cast<std::size_t>(piece)] + so_far, piece);
      covered = covered || end - at == length;
    }
    if (!covered) offer(at + length, unknown_score_ + so_far, kUnknownPiece);
    at += length;
  }
  memory.path.clear();
  for (std::size_t end = word.size(); end > 0;) {
    const Node& node = nodes[end];
    PITON_ASSERT(node.length != 0 && node.length <= end);
    end -= node.length;
    memory.path.emplace_back(end, node.piece);
  }
  for (std::size_t i = memory.path.size(); i-- > 0;) {
    const auto [begin, piece] = memory.path[i];
    const bool is_unknown = piece == kUnknownPiece || piece == unknown_;
    if (!is_unknown) {
      out.push_back(piece);
      continue;
    }
    if (fuse_unknown_) {
      while (i > 0 && (memory.path[i - 1].second == kUnknownPiece ||
                       memory.path[i - 1].second == unknown_)) {
        --i;
      }
    }
    const std::size_t end = i > 0 ? memory.path[i - 1].first : word.size();
    append_unknown(word.substr(begin, end - begin), out);
  }
}

}  // namespace piton
