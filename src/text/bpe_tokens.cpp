#include "text/bpe_tokens.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::uint32_t kMade = 0xFFFFFFFFU;  // the class of what a rule makes

// A trie that grows: an open hash table of (node, class) -> node.
class GrowingTrie {
 public:
  struct Node {
    std::int32_t parent;
    std::uint32_t symbol;  // by class
    std::int32_t token;    // -1 for none
  };

  GrowingTrie() : nodes_(1, {-1, 0, -1}), slots_(1024, 0) {}

  std::int32_t child(std::int32_t node, std::uint32_t symbol) {
    if (nodes_.size() * 2 > slots_.size()) grow();
    std::size_t slot = place(node, symbol);
    for (; slots_[slot] != 0; slot = (slot + 1) & (slots_.size() - 1)) {
      const Node& found = nodes_[static_cast<std::size_t>(slots_[slot])];
      if (found.parent == node && found.symbol == symbol) return slots_[slot];
    }
    slots_[slot] = static_cast<std::int32_t>(nodes_.size());
    nodes_.push_back({node, symbol, -1});
    return slots_[slot];
  }
  void set_token(std::int32_t node, std::int32_t token) { nodes_[static_cast<std::size_t>(node)].token = token; }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  std::size_t place(std::int32_t node, std::uint32_t symbol) const {
    const std::uint64_t key = (std::uint64_t{static_cast<std::uint32_t>(node)} << 32 | symbol) * 0x9E3779B97F4A7C15U;
    return (key ^ key >> 32) & (slots_.size() - 1);
  }
  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (std::size_t i = 1; i < nodes_.size(); ++i) {
      std::size_t slot = place(nodes_[i].parent, nodes_[i].symbol);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<std::int32_t>(i);
    }
  }

  std::vector<Node> nodes_;
  std::vector<std::int32_t> slots_;  // 0 is free: no child is the root
};

}  // namespace

BpeTokens::BpeTokens(const MergeTable& table) : table_(&table) {
  const std::vector<MergeRule> rules = table.rules();
  std::int32_t largest = -1;
  for (const MergeRule& rule : rules) largest = std::max({largest, rule.left, rule.right, rule.result});
  tokens_.resize(static_cast<std::size_t>(largest + 1));
  find_classes(rules);
  find_live_rules(rules);
  build_trie(rules);
}

void BpeTokens::find_classes(const std::vector<MergeRule>& rules) {
  class_of_.assign(tokens_.size(), kAlone);
  for (const MergeRule& rule : rules) class_of_[static_cast<std::size_t>(rule.result)] = kMade;
  for (const MergeRule& rule : rules) {
    for (const std::int32_t id : {rule.left, rule.right}) {
      std::uint32_t& symbol = class_of_[static_cast<std::size_t>(id)];
      if (symbol != kAlone) continue;
      symbol = ++classes_;
      token(id).length = 1;
    }
  }
}

void BpeTokens::find_live_rules(const std::vector<MergeRule>& rules) {
  const auto possible = [this](const MergeRule& rule) {
    return token(rule.left).length != 0 && token(rule.right).length != 0;
  };
  // What could keep a rule from firing is of a lower order, so it is known when its turn comes.
  for (const MergeRule& rule : rules) {
    if (!possible(rule)) continue;
    const Token& left = token(rule.left);
    const Token& right = token(rule.right);
    if (left.time > rule.order || right.time > rule.order) continue;
    if (merges_before(rule.left, rule.right)) continue;
    Token& made = token(rule.result);
    const std::uint32_t length = left.length + right.length;
    if (made.length != 0 || length > kMaxLength) continue;
    made = {rule.left, rule.right, rule.order + 1, kNone, length};
  }
  // Another rule fires in no word if it does not in the symbols of its own pair.
  unsafe_.assign(classes_ + 1, 0);
  for (const MergeRule& rule : rules) {
    if (!possible(rule) || is_live(rule.left, rule.right, rule.result)) continue;
    if (merges_before(rule.left, rule.right)) continue;
    std::int32_t last = rule.left;
    while (token(last).right != kNone) last = token(last).right;
    std::int32_t first = rule.right;
    while (token(first).left != kNone) first = token(first).left;
    unsafe_[class_of_[static_cast<std::size_t>(last)]] |= kEndsLeft;
    unsafe_[class_of_[static_cast<std::size_t>(first)]] |= kBeginsRight;
    any_unsafe_ = true;
  }
}

bool BpeTokens::merges_before(std::int32_t left, std::int32_t right) const {
  // Back through time: of the two tokens at the border, the one that was made later falls apart.
  std::uint32_t until_left = kNever;  // when the one on the left is merged with what is left of it
  std::uint32_t until_right = kNever;
  while (true) {
    const Token& a = token(left);
    const Token& b = token(right);
    if (a.time >= b.time) {
      if (a.time == 0) return false;
      until_left = a.time;
      left = a.right;
    } else {
      until_right = b.time;
      right = b.left;
    }
    const MergeTable::Found found = table_->find_rare(left, right);
    if (found.order == MergeTable::kNone) continue;
    // Of equal orders the leftmost goes first.
    const std::uint32_t time = found.order + 1;
    if (time < until_left && time <= until_right && is_live(left, right, found.result)) return true;
  }
}

bool BpeTokens::stay_apart(std::int32_t left, std::int32_t right) const {
  const MergeTable::Found found = table_->find_rare(left, right);
  if (found.order != MergeTable::kNone && is_live(left, right, found.result)) return false;
  return !merges_before(left, right);
}

void BpeTokens::build_trie(const std::vector<MergeRule>& rules) {
  // Spellings by class, one after another; that of a token follows those of its parts.
  GrowingTrie trie;
  struct Spelling {
    std::size_t begin = 0;
    std::int32_t node = 0;
  };
  std::vector<std::uint32_t> symbols;
  std::vector<Spelling> spellings(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].length != 1) continue;
    spellings[id] = {symbols.size(), trie.child(0, class_of_[id])};
    symbols.push_back(class_of_[id]);
    trie.set_token(spellings[id].node, static_cast<std::int32_t>(id));
  }
  for (const MergeRule& rule : rules) {
    if (!is_live(rule.left, rule.right, rule.result)) continue;
    const Spelling& left = spellings[static_cast<std::size_t>(rule.left)];
    const Spelling& right = spellings[static_cast<std::size_t>(rule.right)];
    Spelling& made = spellings[static_cast<std::size_t>(rule.result)];
    made = {symbols.size(), left.node};
    for (std::size_t i = 0; i < token(rule.left).length; ++i) symbols.push_back(symbols[left.begin + i]);
    for (std::size_t i = 0; i < token(rule.right).length; ++i) {
      symbols.push_back(symbols[right.begin + i]);
      made.node = trie.child(made.node, symbols.back());
    }
    trie.set_token(made.node, rule.result);
  }

  // A node comes after its parent. From here on its token is the longest on the way to it.
  std::vector<std::int32_t> best(trie.nodes().size(), kNone);
  std::vector<std::vector<Edge>> children(trie.nodes().size());
  for (std::size_t i = 1; i < best.size(); ++i) {
    const GrowingTrie::Node& node = trie.nodes()[i];
    const auto parent = static_cast<std::size_t>(node.parent);
    best[i] = best[parent];
    if (node.token != kNone) {
      token(node.token).shorter = best[parent];
      best[i] = node.token;
    }
    children[parent].push_back({node.symbol, static_cast<std::int32_t>(i)});
  }
  place_nodes(children, best);
}

void BpeTokens::place_nodes(const std::vector<std::vector<Edge>>& children, const std::vector<std::int32_t>& best) {
  // Places up to the number of classes stay free: where a node without children looks for them.
  const std::size_t margin = classes_ + 1;
  constexpr int kTries = 64;
  nodes_.assign(2 * margin + children.size(), Node{});
  std::vector<bool> taken(nodes_.size(), false);
  std::fill(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(margin), true);
  const auto is_taken = [&](std::size_t place) { return place < taken.size() && taken[place]; };
  std::size_t free = margin;         // all before it are taken
  std::size_t family_free = margin;  // all before it are given up for siblings
  std::vector<std::pair<std::int32_t, std::size_t>> queue = {{0, 0}};  // nodes and their places
  for (std::size_t done = 0; done < queue.size(); ++done) {
    const auto [node, at] = queue[done];
    std::vector<Edge> edges = children[static_cast<std::size_t>(node)];
    if (edges.empty()) continue;
    std::sort(edges.begin(), edges.end());
    while (is_taken(free)) ++free;
    std::size_t first = free;
    if (edges.size() > 1) {
      family_free = std::max(family_free, free);
      const auto fits = [&](std::size_t place) {
        return std::none_of(edges.begin(), edges.end(),
                            [&](const Edge& edge) { return is_taken(place + edge.first - edges[0].first); });
      };
      first = family_free;
      int tries = 0;
      while (!fits(first)) {
        ++first;
        // Crowded places cost more than they are worth.
        if (++tries == kTries) family_free = first;
      }
    }
    const std::size_t base = first - edges[0].first;
    if (base + margin > nodes_.size()) {
      nodes_.resize(base + 2 * margin);
      taken.resize(nodes_.size(), false);
    }
    nodes_[at].base = static_cast<std::int32_t>(base);
    for (const auto& [symbol, child] : edges) {
      const std::size_t place = base + symbol;
      taken[place] = true;
      nodes_[place] = {0, static_cast<std::int32_t>(at), best[static_cast<std::size_t>(child)]};
      queue.emplace_back(child, place);
    }
  }
}

std::int32_t BpeTokens::longest(const std::uint32_t* classes, const std::uint32_t* end) const {
  std::int32_t node = 0;
  std::int32_t best = kNone;
  for (; classes != end; ++classes) {
    const std::int32_t next = nodes_[static_cast<std::size_t>(node)].base + static_cast<std::int32_t>(*classes);
    const Node& found = nodes_[static_cast<std::size_t>(next)];
    if (found.parent != node) break;
    node = next;
    best = found.token;
  }
  return best;
}

std::size_t BpeTokens::encode_run(std::int32_t* out, const std::uint32_t* classes, std::size_t count,
                                  std::vector<std::uint64_t>& dead) const {
  const std::uint32_t* const end = classes + count;
  std::size_t at = 0;
  std::size_t left = 0;
  bool any_dead = false;
  const auto is_dead = [&](std::size_t place) { return any_dead && (dead[place / 64] >> (place % 64) & 1) != 0; };
  std::int32_t next = longest(classes, end);
  while (true) {
    std::size_t length = token(next).length;
    while (is_dead(at + length) || (left > 0 && !stay_apart(out[left - 1], next))) {
      next = token(next).shorter;
      if (next == kNone) {
        // No token fits here: the one before was too long.
        PITON_ASSERT(left > 0);
        if (!any_dead) dead.assign(count / 64 + 1, 0);
        any_dead = true;
        dead[at / 64] |= std::uint64_t{1} << (at % 64);
        next = out[--left];
        at -= token(next).length;
      }
      length = token(next).length;
    }
    out[left++] = next;
    at += length;
    if (at == count) return left;
    next = longest(classes + at, end);
  }
}

std::size_t BpeTokens::encode(std::int32_t* symbols, std::size_t count, Scratch& scratch) const {
  std::vector<std::uint32_t>& classes = scratch.classes;
  if (classes.size() < count) classes.resize(count);
  bool any_alone = false;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::size_t>(symbols[i]);
    classes[i] = id < class_of_.size() ? class_of_[id] : kAlone;
    if (classes[i] == kMade) return 0;
    any_alone = any_alone || classes[i] == kAlone;
  }
  if (any_unsafe_) {
    for (std::size_t i = 1; i < count; ++i) {
      if ((unsafe_[classes[i - 1]] & kEndsLeft) != 0 && (unsafe_[classes[i]] & kBeginsRight) != 0) return 0;
    }
  }
  if (!any_alone) return encode_run(symbols, classes.data(), count, scratch.dead);
  std::size_t left = 0;
  for (std::size_t at = 0; at < count;) {
    if (classes[at] == kAlone) {
      symbols[left++] = symbols[at++];
      continue;
    }
    std::size_t end = at;
    while (end < count && classes[end] != kAlone) ++end;
    left += encode_run(symbols + left, classes.data() + at, end - at, scratch.dead);
    at = end;
  }
  return left;
}

}  // namespace piton
