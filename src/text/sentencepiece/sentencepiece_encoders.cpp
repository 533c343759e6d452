#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/sentencepiece/sentencepiece_scratch.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// An unknown character scores this much below the worst piece.
constexpr float kUnknownPenalty = 10.0F;
constexpr std::int32_t kUnknownPiece = -1;

}  // namespace

void SentencePieceTokenizer::build_bpe() {
  using Type = SentencePieceFacts::Type;
  const auto mergeable = [this](std::int32_t id) {
    const Type type = type_of(id);
    return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
  };
  // Symbols are characters: pieces of one character, and characters that only occur inside pieces.
  std::fill(std::begin(ascii_), std::end(ascii_), -1);
  const auto helper_base = static_cast<std::int32_t>(facts_.pieces.size());
  std::unordered_map<std::string_view, std::int32_t> symbol_of;
  for (std::size_t i = 0; i < facts_.pieces.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (!mergeable(id)) continue;
    symbol_of.emplace(facts_.pieces[i].text, id);
    neighbors_.add(facts_.pieces[i].text);
  }
  std::vector<std::string_view> helpers;
  for (std::size_t i = 0; i < facts_.pieces.size(); ++i) {
    if (!mergeable(static_cast<std::int32_t>(i))) continue;
    const std::string_view text = facts_.pieces[i].text;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      const std::string_view one = text.substr(at, c.length);
      at += c.length;
      if (c.value == kBadByte) continue;
      auto [found, is_new] =
          symbol_of.emplace(one, helper_base + static_cast<std::int32_t>(helpers.size()));
      if (is_new) helpers.push_back(one);
      characters_.emplace(c.value, found->second);
      if (c.value < 128) ascii_[c.value] = found->second;
    }
  }
  helper_characters_.assign(helpers.begin(), helpers.end());

  // The order is the rank of the score, so that equal scores merge from left to right.
  std::vector<float> scores;
  for (const auto& piece : facts_.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<MergeRule> rules;
  for (std::size_t i = 0; i < facts_.pieces.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const auto& piece = facts_.pieces[i];
    if (!mergeable(id)) continue;
    const auto order = static_cast<std::uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin());
    const std::string_view text = piece.text;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = symbol_of.find(text.substr(0, cut));
      const auto right = symbol_of.find(text.substr(cut));
      if (left == symbol_of.end() || right == symbol_of.end()) continue;
      rules.push_back({left->second, right->second, id, order});
      if (piece.type == Type::kUnused) {
        parts_of_unused_.emplace(id, std::pair(left->second, right->second));
      }
    }
  }
  merges_ = std::make_unique<BpeRules>(rules);
}

void SentencePieceTokenizer::encode_bpe(std::string_view text, Scratch& scratch,
                                        std::vector<std::int32_t>& out) const {
  while (!text.empty()) {
    std::size_t length = text.size();
    if (has_user_defined_) {
      // User-defined pieces are cut out first and never merged.
      std::int32_t id = 0;
      if (const std::size_t found = user_defined_at(text, &id); found > 0) {
        out.push_back(id);
        text.remove_prefix(found);
        continue;
      }
      length = 0;
      while (length < text.size() && user_defined_at(text.substr(length), nullptr) == 0) {
        length += decode_utf8(text, length).length;
      }
    }
    std::string_view stretch = text.substr(0, length);
    text.remove_prefix(length);
    while (!stretch.empty()) {
      const std::size_t part = neighbors_.first_part(stretch);
      encode_bpe_part(stretch.substr(0, part), scratch, out);
      stretch.remove_prefix(part);
    }
  }
}

void SentencePieceTokenizer::encode_bpe_part(std::string_view part, Scratch& scratch,
                                             std::vector<std::int32_t>& out) const {
  WordCache::ShortLine* line = nullptr;
  WordCache::Key key;
  if (part.size() <= WordCache::kShortBytes) {
    key = WordCache::short_key(part, part.size());
    line = &scratch.cache.short_line(key);
    if (const WordCache::ShortSlot* found = WordCache::find(*line, key)) {
      out.insert(out.end(), found->ids, found->ids + found->count);
      return;
    }
  }
  std::vector<std::int32_t>& ids = scratch.part_ids;
  ids.clear();
  scratch.symbols.clear();
  for (std::size_t at = 0; at < part.size();) {
    const Utf8Char c = decode_utf8(part, at);
    std::int32_t symbol = -1;
    if (c.value < 128) {
      symbol = ascii_[c.value];
    } else if (const auto found = characters_.find(c.value); found != characters_.end()) {
      symbol = found->second;
    }
    if (symbol >= 0) {
      scratch.symbols.push_back(symbol);
    } else {
      merge_run(scratch, ids);  // nothing merges across an unknown character
      append_unknown(part.substr(at, c.length), ids);
    }
    at += c.length;
  }
  merge_run(scratch, ids);
  out.insert(out.end(), ids.begin(), ids.end());
  if (line != nullptr) WordCache::keep(*line, key, ids);
}

void SentencePieceTokenizer::merge_run(Scratch& scratch, std::vector<std::int32_t>& out) const {
  const std::size_t left = scratch.merger->merge(scratch.symbols.data(), scratch.symbols.size());
  for (std::size_t i = 0; i < left; ++i) append_split(scratch.symbols[i], out);
  scratch.symbols.clear();
}

void SentencePieceTokenizer::append_split(std::int32_t symbol,
                                          std::vector<std::int32_t>& out) const {
  const auto pieces = static_cast<std::int32_t>(facts_.pieces.size());
  if (symbol >= pieces) {
    append_unknown(helper_characters_[static_cast<std::size_t>(symbol - pieces)], out);
    return;
  }
  // An unused piece is split into its parts, which are shorter, so the recursion ends.
  const auto parts = parts_of_unused_.find(symbol);
  if (parts == parts_of_unused_.end()) {
    out.push_back(symbol);
    return;
  }
  append_split(parts->second.first, out);
  append_split(parts->second.second, out);
}

void SentencePieceTokenizer::encode_unigram(std::string_view text, Scratch& scratch,
                                            std::vector<std::int32_t>& out) const {
  using Node = Scratch::Node;
  const float unknown_score = lowest_score_ - kUnknownPenalty;
  std::vector<Node>& nodes = scratch.nodes;
  nodes.assign(text.size() + 1, Node{});
  for (std::size_t at = 0; at < text.size();) {
    const float so_far = nodes[at].score;
    const std::size_t length = decode_utf8(text, at).length;
    bool covered = false;
    // Sums are in float, as in the library (0.2), because rounding decides ties in long texts.
    const auto offer = [&](std::size_t end, float score, std::int32_t piece) {
      Node& node = nodes[end];
      if (node.from < 0 || score > node.score) {
        node = {piece, score, static_cast<std::ptrdiff_t>(at)};
      }
    };
    std::size_t end = at;
    for (std::int32_t state = trie_.first(text[at]); state != Trie::kNone;
         state = end < text.size() ? trie_.step(state, text[end]) : Trie::kNone) {
      ++end;
      const std::int32_t piece = trie_.value(state);
      if (piece == Trie::kNone) continue;
      const auto& facts = facts_.pieces[static_cast<std::size_t>(piece)];
      const float score =
          facts.type == SentencePieceFacts::Type::kUserDefined
              ? static_cast<float>(static_cast<float>(end - at) * highest_score_ - 0.1)
              : facts.score;
      offer(end, score + so_far, piece);
      covered = covered || end - at == length;
    }
    if (!covered) offer(at + length, unknown_score + so_far, kUnknownPiece);
    at += length;
  }
  scratch.path.clear();
  for (std::size_t end = text.size(); end > 0;) {
    const Node& node = nodes[end];
    PITON_ASSERT(node.from >= 0 && static_cast<std::size_t>(node.from) < end);
    scratch.path.emplace_back(static_cast<std::size_t>(node.from), node.piece);
    end = static_cast<std::size_t>(node.from);
  }
  for (std::size_t i = scratch.path.size(); i-- > 0;) {
    const auto [begin, piece] = scratch.path[i];
    if (piece != kUnknownPiece) {
      out.push_back(piece);
      continue;
    }
    const std::size_t end = i > 0 ? scratch.path[i - 1].first : text.size();
    append_unknown(text.substr(begin, end - begin), out);
  }
}

}  // namespace piton
