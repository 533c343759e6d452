#include "text/models/bpe_model.h"

#include <algorithm>

#include "base/error.h"
#include "text/unicode/byte_level.h"
#include "text/unicode/utf8.h"

namespace piton {

class BpeModel::BpeScratch final : public Scratch {
 public:
  explicit BpeScratch(const BpeRules& rules) : merger(rules) {}
  BpeMerger merger;
  std::vector<std::int32_t> symbols;
};

BpeModel::BpeModel(const BpeFacts& facts, const std::string& where)
    : byte_level_(facts.byte_level),
      ignore_merges_(facts.ignore_merges),
      fuse_unknown_(facts.fuse_unknown),
      byte_fallback_(facts.byte_fallback),
      continuing_prefix_(facts.continuing_prefix),
      end_suffix_(facts.end_suffix) {
  vocabulary_.add_all(facts.vocabulary, where);
  merges_ = std::make_unique<BpeRules>(rules_of(facts, where));
  if (facts.unknown) {
    unknown_ = vocabulary_.id_of(*facts.unknown);
    if (!unknown_) {
      throw Error(Fault::kData, "{}: the unknown token \"{}\" is not in the vocabulary; add it",
                  where, *facts.unknown);
    }
  }
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  if (byte_level_) {
    learn_raw_bytes(facts);
  } else {
    learn_characters(facts);
  }
}

std::vector<MergeRule> BpeModel::rules_of(const BpeFacts& facts, const std::string& where) const {
  std::vector<MergeRule> rules = facts.rules;
  rules.reserve(rules.size() + facts.merges.size());
  for (const auto& [left, right] : facts.merges) {
    if (!right.starts_with(continuing_prefix_)) {
      throw Error(
          Fault::kData,
          "{}: merge {} (\"{}\" \"{}\"): the right part lacks the continuing prefix \"{}\"; "
          "is the file damaged?",
          where, rules.size(), left, right, continuing_prefix_);
    }
    const std::string joined = left + right.substr(continuing_prefix_.size());
    const auto left_id = vocabulary_.id_of(left);
    const auto right_id = vocabulary_.id_of(right);
    const auto joined_id = vocabulary_.id_of(joined);
    if (!left_id || !right_id || !joined_id) {
      throw Error(
          Fault::kData,
          "{}: merge {} (\"{}\" \"{}\"): \"{}\" is not in the vocabulary; do the vocabulary "
          "and the merges come from one model?",
          where, rules.size(), left, right,
          !left_id    ? left
          : !right_id ? right
                      : joined);
    }
    rules.push_back({*left_id, *right_id, *joined_id, static_cast<std::uint32_t>(rules.size())});
  }
  return rules;
}

void BpeModel::learn_raw_bytes(const BpeFacts& facts) {
  const ByteAlphabet alphabet;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (const auto id = vocabulary_.id_of(alphabet.spell({&c, 1}))) byte_ids_[byte] = *id;
  }
  splits_ = !ignore_merges_;
  for (const auto& [piece, id] : facts.vocabulary) {
    const auto raw = alphabet.bytes(piece);
    if (!raw) continue;
    if (splits_) {
      neighbors_.add(*raw);
    } else {
      raw_words_.emplace(*raw, id);
    }
  }
}

void BpeModel::learn_characters(const BpeFacts& facts) {
  bool all_bytes = true;
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
    if (id) byte_ids_[byte] = *id;
    all_bytes = all_bytes && id.has_value();
  }
  for (const auto& [piece, id] : facts.vocabulary) {
    if (piece.empty()) continue;
    const Utf8Char c = decode_utf8(piece, 0);
    if (c.length != piece.size() || c.value == kBadByte) continue;
    const std::int32_t first = *vocabulary_.id_of(piece);
    if (c.value < 128) ascii_ids_[c.value] = first;
    character_ids_.emplace(c.value, first);
  }
  const bool no_unknown_runs = !unknown_ || !fuse_unknown_ || (byte_fallback_ && all_bytes);
  splits_ = continuing_prefix_.empty() && end_suffix_.empty() && !ignore_merges_ && no_unknown_runs;
  if (!splits_) return;
  // Only pieces that rules produce are needed. Adding all pieces is exact too; it loses a few cuts.
  for (std::int64_t id = 0; id < vocabulary_.size(); ++id) {
    neighbors_.add(vocabulary_.piece(static_cast<std::int32_t>(id)));
  }
}

std::size_t BpeModel::first_part(std::string_view word) const {
  return splits_ ? neighbors_.first_part(word) : word.size();
}

std::unique_ptr<WordModel::Scratch> BpeModel::make_scratch() const {
  return std::make_unique<BpeScratch>(*merges_);
}

std::int32_t BpeModel::character_id(char32_t c, std::string_view text) const {
  if (continuing_prefix_.empty() && end_suffix_.empty()) {
    if (c < 128) return ascii_ids_[c];
    const auto found = character_ids_.find(c);
    return found == character_ids_.end() ? -1 : found->second;
  }
  return vocabulary_.id_of(text).value_or(-1);
}

void BpeModel::encode_characters(std::string_view word, std::vector<std::int32_t>& symbols) const {
  bool unknown_waits = false;
  std::string decorated;
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    const std::string_view text = word.substr(at, c.length);
    std::string_view spelt = text;
    if (!continuing_prefix_.empty() || !end_suffix_.empty()) {
      decorated = at > 0 ? continuing_prefix_ : "";
      decorated += text;
      if (at + c.length == word.size()) decorated += end_suffix_;
      spelt = decorated;
    }
    at += c.length;
    const std::int32_t id = character_id(c.value, spelt);
    if (id >= 0) {
      if (unknown_waits) symbols.push_back(*unknown_);
      unknown_waits = false;
      symbols.push_back(id);
      continue;
    }
    const auto known_byte = [this](char byte) {
      return byte_ids_[static_cast<unsigned char>(byte)] >= 0;
    };
    if (byte_fallback_ && std::all_of(spelt.begin(), spelt.end(), known_byte)) {
      for (const char byte : spelt) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
      continue;
    }
    if (!unknown_) continue;
    // The unknown token is held back: with fuse_unknown, a run of unknowns is one token.
    if (unknown_waits && !fuse_unknown_) symbols.push_back(*unknown_);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(*unknown_);
}

void BpeModel::encode(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& out) const {
  auto& memory = static_cast<BpeScratch&>(scratch);
  if (ignore_merges_) {
    if (byte_level_) {
      const auto found = raw_words_.find(std::string(word));
      if (found != raw_words_.end()) {
        out.push_back(found->second);
        return;
      }
    } else if (const auto id = vocabulary_.id_of(word)) {
      out.push_back(*id);
      return;
    }
  }
  std::vector<std::int32_t>& symbols = memory.symbols;
  symbols.clear();
  if (byte_level_) {
    for (const char byte : word) {
      const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id >= 0) {
        symbols.push_back(id);
      } else if (unknown_) {
        symbols.push_back(*unknown_);
      }
    }
  } else {
    encode_characters(word, symbols);
  }
  const std::size_t left = memory.merger.merge(symbols.data(), symbols.size());
  out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(left));
}

}  // namespace piton
