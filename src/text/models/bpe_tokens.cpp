#include "text/models/bpe_tokens.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::uint8_t kEndsLeft = 1;
constexpr std::uint8_t kBeginsRight = 2;

// 2^64 / golden ratio.
std::uint64_t hash_of(std::uint64_t key) { return (key ^ key >> 21) * 0x9E3779B97F4A7C15U; }

// A growing trie: hash table of (node, symbol) -> node with open addressing. A node has a larger
// number than its parent.
class GrowingTrie {
 public:
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t symbol = 0;
    std::uint32_t token = 0xFFFFFFFFU;
  };

  GrowingTrie() : nodes_(1), slots_(1024, 0) {}

  std::uint32_t child(std::uint32_t node, std::uint32_t symbol) {
    if (nodes_.size() * 2 > slots_.size()) grow();
    std::size_t slot = place(node, symbol);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const Node& found = nodes_[slots_[slot]];
      if (found.parent == node && found.symbol == symbol) return slots_[slot];
    }
    slots_[slot] = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({node, symbol});
    return slots_[slot];
  }
  void set_token(std::uint32_t node, std::uint32_t token) { nodes_[node].token = token; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::size_t place(std::uint32_t node, std::uint32_t symbol) const {
    const std::uint64_t key = (std::uint64_t{node} << 32 | symbol) * 0x9E3779B97F4A7C15U;
    return (key ^ key >> 32) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      std::size_t slot = place(nodes_[i].parent, nodes_[i].symbol);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> slots_;  // 0: free (the root is no child)
};

// Finds free places in a double array for the children of a node.
class FreePlaces {
 public:
  // Places below `first` are taken.
  explicit FreePlaces(std::size_t first) : taken_(first, true), single_(first), several_(first) {}

  // Returns the place of the child with the first symbol; the others are at the distances of their
  // symbols. `symbols` must rise.
  std::size_t find(std::span<const std::uint32_t> symbols) {
    while (is_taken(single_)) ++single_;
    if (symbols.size() == 1) return single_;
    several_ = std::max(several_, single_);
    std::size_t place = several_;
    for (int tries = 0; !fits(place, symbols); ++place) {
      // Too crowded: later searches start here.
      if (++tries == kTries) several_ = place;
    }
    return place;
  }
  void take(std::size_t place) {
    if (place >= taken_.size()) taken_.resize(std::max(place + 1, taken_.size() * 2), false);
    taken_[place] = true;
  }

 private:
  static constexpr int kTries = 64;
  bool is_taken(std::size_t place) const { return place < taken_.size() && taken_[place]; }
  bool fits(std::size_t place, std::span<const std::uint32_t> symbols) const {
    return std::none_of(symbols.begin(), symbols.end(), [&](std::uint32_t symbol) {
      return is_taken(place + symbol - symbols[0]);
    });
  }

  std::vector<bool> taken_;
  std::size_t single_;   // all places before it are taken
  std::size_t several_;  // places before it are skipped if there are several children
};

}  // namespace

BpeTokens::BpeTokens(const MergeTable& table) {
  const std::vector<MergeRule> rules = table.rules();
  find_symbols(rules);
  find_live_rules(rules);
  find_unsafe_pairs(rules);
  build_trie();
}

void BpeTokens::find_symbols(std::span<const MergeRule> rules) {
  std::int32_t largest = -1;
  for (const MergeRule& rule : rules)
    largest = std::max({largest, rule.left, rule.right, rule.result});
  index_of_.assign(static_cast<std::size_t>(largest + 1), kAlone);
  for (const MergeRule& rule : rules) index_of_[static_cast<std::size_t>(rule.result)] = kNone;
  for (const MergeRule& rule : rules) {
    for (const std::int32_t id : {rule.left, rule.right}) {
      std::uint32_t& index = index_of_[static_cast<std::size_t>(id)];
      if (index != kAlone) continue;
      index = static_cast<std::uint32_t>(tokens_.size());
      tokens_.emplace_back().last = index;
      ids_.push_back(id);
    }
  }
  symbols_ = tokens_.size();
}

void BpeTokens::find_live_rules(std::span<const MergeRule> rules) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(64, rules.size() * 2));
  pairs_.assign(slots, 0);
  pair_shift_ = 64 - std::countr_zero(slots);
  pair_filter_.assign(slots * 4 / 64, 0);
  if (symbols_ <= kSquare) square_.assign(symbols_ * symbols_, kNever);
  std::vector<std::uint32_t> made(index_of_);  // [ids] their tokens, as far as they are known
  std::uint32_t time = 0;
  std::uint32_t order = 0;
  // Only rules of lower order can keep a rule from firing; they are known when it is its turn.
  for (const MergeRule& rule : rules) {
    if (time == 0 || rule.order != order) ++time;
    order = rule.order;
    const std::uint32_t left = made[static_cast<std::size_t>(rule.left)];
    const std::uint32_t right = made[static_cast<std::size_t>(rule.right)];
    std::uint32_t& result = made[static_cast<std::size_t>(rule.result)];
    const bool possible = left != kNone && right != kNone && result == kNone;
    if (!possible || tokens_.size() >= kMaxTokens || time >> kTimeBits != 0) continue;
    if (tokens_[left].time >= time || tokens_[right].time >= time) continue;
    if (tokens_[left].length + tokens_[right].length > kMaxLength || merges_across(left, right))
      continue;
    result = static_cast<std::uint32_t>(tokens_.size());
    ids_.push_back(rule.result);
    add_token(left, right, time);
  }
}

void BpeTokens::add_token(std::uint32_t left, std::uint32_t right, std::uint32_t time) {
  const Token& a = tokens_[left];
  const Token& b = tokens_[right];
  tokens_.push_back({.left = left,
                     .right = right,
                     .time = time,
                     .length = a.length + b.length,
                     .last = b.last,
                     .first_time = a.time == 0 ? time : a.first_time,
                     .last_time = b.time == 0 ? time : b.last_time});
  if (!square_.empty() && left < symbols_ && right < symbols_)
    square_[left * symbols_ + right] = time;
  const std::uint64_t key = std::uint64_t{left} << kIndexBits | right;
  const std::uint64_t hash = hash_of(key);
  const std::uint64_t bit = hash >> (pair_shift_ - 2);
  pair_filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  std::size_t slot = hash >> pair_shift_;
  while (pairs_[slot] != 0) slot = (slot + 1) & (pairs_.size() - 1);
  pairs_[slot] = key << kTimeBits | time;
}

inline std::uint32_t BpeTokens::time_of(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t key = std::uint64_t{left} << kIndexBits | right;
  const std::uint64_t hash = hash_of(key);
  const std::uint64_t bit = hash >> (pair_shift_ - 2);
  if ((pair_filter_[bit / 64] >> (bit % 64) & 1) == 0) return kNever;
  for (std::size_t slot = hash >> pair_shift_;; slot = (slot + 1) & (pairs_.size() - 1)) {
    const std::uint64_t found = pairs_[slot];
    if (found >> kTimeBits == key && found != 0) return found & ((1U << kTimeBits) - 1);
    if (found == 0) return kNever;
  }
}

inline bool BpeTokens::parts_merge(std::uint32_t left, std::uint32_t right) const {
  // Goes back in time: of the two tokens at the border, the one made later is split into its parts.
  std::uint32_t until_left = kNever;  // when the left one merges with its left neighbor
  std::uint32_t until_right = kNever;
  while (left >= symbols_ || right >= symbols_) {
    // Among equal orders the leftmost pair merges first.
    const std::uint32_t time = time_of(left, right);
    if (time < until_left && time <= until_right) return true;
    const Token& a = tokens_[left];
    const Token& b = tokens_[right];
    const bool left_first = a.time >= b.time;
    until_left = left_first ? a.time : until_left;
    until_right = left_first ? until_right : b.time;
    left = left_first ? a.right : left;
    right = left_first ? right : b.left;
  }
  return false;
}

bool BpeTokens::merges_across(std::uint32_t left, std::uint32_t right) const {
  std::uint32_t first = right;
  while (first >= symbols_) first = tokens_[first].left;
  const std::uint32_t time = time_of_symbols(tokens_[left].last, first);
  return symbols_merge(tokens_[left], tokens_[right], time) || parts_merge(left, right);
}

void BpeTokens::find_unsafe_pairs(std::span<const MergeRule> rules) {
  std::vector<std::uint32_t> made(index_of_);
  for (std::size_t token = symbols_; token < tokens_.size(); ++token) {
    made[static_cast<std::size_t>(ids_[token])] = static_cast<std::uint32_t>(token);
  }
  unsafe_.assign(symbols_, 0);
  // A rule that is not live fires in some word only if it fires in the symbols of the same pair.
  for (const MergeRule& rule : rules) {
    std::uint32_t left = made[static_cast<std::size_t>(rule.left)];
    std::uint32_t right = made[static_cast<std::size_t>(rule.right)];
    if (left == kNone || right == kNone || merges_across(left, right)) continue;
    while (left >= symbols_) left = tokens_[left].right;
    while (right >= symbols_) right = tokens_[right].left;
    unsafe_[left] |= kEndsLeft;
    unsafe_[right] |= kBeginsRight;
    any_unsafe_ = true;
  }
}

void BpeTokens::build_trie() {
  // Spellings, concatenated. The spelling of a token begins with that of its left part.
  GrowingTrie trie;
  std::vector<std::uint32_t> spelling;
  std::vector<std::size_t> begins(tokens_.size());
  std::vector<std::uint32_t> ends(tokens_.size());  // nodes
  for (std::uint32_t i = 0; i < tokens_.size(); ++i) {
    const Token& token = tokens_[i];
    begins[i] = spelling.size();
    if (i < symbols_) {
      spelling.push_back(i);
      ends[i] = trie.child(0, i);
    } else {
      spelling.resize(spelling.size() + token.length);
      const auto at = spelling.begin() + static_cast<std::ptrdiff_t>(begins[i]);
      const std::uint32_t left_length = tokens_[token.left].length;
      std::copy_n(spelling.begin() + static_cast<std::ptrdiff_t>(begins[token.left]), left_length,
                  at);
      std::copy_n(spelling.begin() + static_cast<std::ptrdiff_t>(begins[token.right]),
                  token.length - left_length, at + left_length);
      ends[i] = ends[token.left];
      for (std::uint32_t k = left_length; k < token.length; ++k)
        ends[i] = trie.child(ends[i], at[k]);
    }
    trie.set_token(ends[i], i);
  }

  // Children grouped by node.
  const std::vector<GrowingTrie::Node>& from = trie.nodes();
  std::vector<std::uint32_t> longest(from.size(), kNone);
  std::vector<std::uint32_t> first(from.size() + 1, 0);
  for (std::size_t i = 1; i < from.size(); ++i) {
    longest[i] = longest[from[i].parent];
    if (from[i].token != kNone) {
      tokens_[from[i].token].shorter = std::exchange(longest[i], from[i].token);
    }
    ++first[from[i].parent + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<std::uint32_t> children(from.size());
  std::vector<std::uint32_t> filled(first.begin(), first.end() - 1);
  for (std::uint32_t i = 1; i < from.size(); ++i) children[filled[from[i].parent]++] = i;

  // Breadth first, so that nodes near the root are close in memory. Places 0 .. symbols_ stay
  // unused: a node without children has base 0 and looks for them there.
  FreePlaces places(symbols_ + 1);
  std::vector<std::uint32_t> place_of(from.size(), 0);
  std::vector<std::uint32_t> queue = {0};
  std::vector<std::uint32_t> symbols;
  nodes_.assign(symbols_ + 1, Node{});
  for (std::size_t done = 0; done < queue.size(); ++done) {
    const std::uint32_t node = queue[done];
    const auto begin = children.begin() + first[node];
    const auto end = children.begin() + first[node + 1];
    if (begin == end) continue;
    std::sort(begin, end,
              [&](std::uint32_t a, std::uint32_t b) { return from[a].symbol < from[b].symbol; });
    symbols.clear();
    for (auto child = begin; child != end; ++child) symbols.push_back(from[*child].symbol);
    const std::size_t base = places.find(symbols) - symbols[0];
    nodes_[place_of[node]].base = static_cast<std::uint32_t>(base);
    if (nodes_.size() < base + symbols_) nodes_.resize(base + symbols_);
    for (auto child = begin; child != end; ++child) {
      const std::size_t place = base + from[*child].symbol;
      places.take(place);
      place_of[*child] = static_cast<std::uint32_t>(place);
      nodes_[place] = {0, place_of[node], longest[*child]};
      queue.push_back(*child);
    }
  }
}

inline std::uint32_t BpeTokens::longest(const std::uint32_t* symbols,
                                        const std::uint32_t* end) const {
  std::uint32_t node = nodes_[0].base + *symbols;
  while (++symbols != end) {
    const std::uint32_t next = nodes_[node].base + *symbols;
    if (nodes_[next].parent != node) break;
    node = next;
  }
  return nodes_[node].longest;
}

std::size_t BpeTokens::encode_run(const std::uint32_t* symbols, std::size_t count,
                                  std::int32_t* out, std::vector<std::uint64_t>& dead) const {
  const std::uint32_t* const end = symbols + count;
  std::uint32_t next = longest(symbols, end);
  std::size_t at = 0;
  std::size_t left = 0;
  std::size_t dead_end = 0;  // the last dead place so far
  const auto is_dead = [&](std::size_t place) {
    return place <= dead_end && (dead[place / 64] >> (place % 64) & 1) != 0;
  };
  while (at < count) {
    if (left > 0) {
      const auto before = static_cast<std::uint32_t>(out[left - 1]);
      const Token& token = tokens_[before];
      const std::uint32_t time = time_of_symbols(token.last, symbols[at]);
      while (next != kNone &&
             (is_dead(at + tokens_[next].length) || symbols_merge(token, tokens_[next], time) ||
              parts_merge(before, next))) {
        next = tokens_[next].shorter;
      }
    } else {
      while (next != kNone && is_dead(tokens_[next].length)) next = tokens_[next].shorter;
    }
    if (next != kNone) {
      out[left++] = static_cast<std::int32_t>(next);
      at += tokens_[next].length;
      if (at < count) next = longest(symbols + at, end);
      continue;
    }
    // No token fits here: replace the token before by a shorter one.
    PITON_ASSERT(left > 0);
    if (dead_end == 0) dead.assign(count / 64 + 1, 0);
    dead_end = std::max(dead_end, at);
    dead[at / 64] |= std::uint64_t{1} << (at % 64);
    const Token& token = tokens_[static_cast<std::size_t>(out[--left])];
    at -= token.length;
    next = token.shorter;
  }
  for (std::size_t i = 0; i < left; ++i) out[i] = ids_[static_cast<std::size_t>(out[i])];
  return left;
}

std::size_t BpeTokens::encode(std::int32_t* symbols, std::size_t count, Scratch& scratch) const {
  std::vector<std::uint32_t>& indices = scratch.symbols;
  if (indices.size() < count) indices.resize(count);
  bool any_alone = false;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::size_t>(symbols[i]);
    indices[i] = id < index_of_.size() ? index_of_[id] : kAlone;
    if (indices[i] == kNone) return 0;
    any_alone = any_alone || indices[i] == kAlone;
  }
  if (any_unsafe_) {
    for (std::size_t i = 1; i < count; ++i) {
      const std::uint32_t a = indices[i - 1];
      const std::uint32_t b = indices[i];
      if (a >= symbols_ || b >= symbols_) continue;
      if ((unsafe_[a] & kEndsLeft) != 0 && (unsafe_[b] & kBeginsRight) != 0) return 0;
    }
  }
  if (!any_alone) return encode_run(indices.data(), count, symbols, scratch.dead);
  std::size_t left = 0;
  for (std::size_t at = 0; at < count;) {
    if (indices[at] == kAlone) {
      symbols[left++] = symbols[at++];
      continue;
    }
    std::size_t end = at;
    while (end < count && indices[end] != kAlone) ++end;
    left += encode_run(indices.data() + at, end - at, symbols + left, scratch.dead);
    at = end;
  }
  return left;
}

}  // namespace piton
