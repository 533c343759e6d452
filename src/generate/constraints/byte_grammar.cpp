#include "generate/constraints/byte_grammar.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

using State = ByteGrammar::State;

constexpr std::size_t kMostStates = 1'000'000;  // 100 MB
constexpr int kDeepest = 1000;                  // nested parts: each is a call on the stack

// Repeats `change` until a whole round changes nothing. Most edges lead to states that were made
// later, so that a round from the last state to the first finds almost all.
template <typename F>
void until_settled(std::size_t states, F&& change) {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = states; i-- > 0;) changed = change(i) || changed;
  }
}

// States from which an end of the rule can be reached.
std::vector<bool> productive_states(const std::vector<ByteGrammar::Node>& nodes) {
  std::vector<bool> good(nodes.size());
  until_settled(nodes.size(), [&](std::size_t i) {
    if (good[i]) return false;
    const ByteGrammar::Node& node = nodes[i];
    bool now = node.end;
    for (const auto& edge : node.bytes) now = now || good[edge.to];
    for (const State to : node.free) now = now || good[to];
    for (const auto& call : node.calls) now = now || (good[call.to] && good[call.first]);
    good[i] = now;
    return now;
  });
  return good;
}

// States from which an end can be reached without a byte.
std::vector<bool> nullable_states(const std::vector<ByteGrammar::Node>& nodes) {
  std::vector<bool> empty(nodes.size());
  until_settled(nodes.size(), [&](std::size_t i) {
    if (empty[i]) return false;
    const ByteGrammar::Node& node = nodes[i];
    bool now = node.end;
    for (const State to : node.free) now = now || empty[to];
    for (const auto& call : node.calls) now = now || (empty[call.to] && empty[call.first]);
    empty[i] = now;
    return now;
  });
  return empty;
}

// Whether a rule may call itself before it reads a byte: a cycle of edges without bytes that has a
// call. Cycles without one are harmless.
bool calls_itself_first(const std::vector<ByteGrammar::Node>& nodes) {
  const std::vector<bool> empty = nullable_states(nodes);
  // Tarjan's strongly connected components, without recursion.
  const auto next_of = [&](State from) {
    std::vector<std::pair<State, bool>> next;  // whether it enters a rule
    for (const State to : nodes[from].free) next.emplace_back(to, false);
    for (const auto& call : nodes[from].calls) {
      next.emplace_back(call.first, true);
      if (empty[call.first]) next.emplace_back(call.to, false);
    }
    return next;
  };
  const auto count = static_cast<State>(nodes.size());
  std::vector<State> order(nodes.size(), -1);
  std::vector<State> low(nodes.size(), 0);
  std::vector<State> component(nodes.size(), -1);
  std::vector<State> open;
  State visited = 0;
  struct Visit {
    State state;
    std::vector<std::pair<State, bool>> next;
    std::size_t at = 0;
  };
  std::vector<Visit> path;
  const auto enter = [&](State state) {
    order[state] = low[state] = visited++;
    open.push_back(state);
    path.push_back({state, next_of(state)});
  };
  for (State start = 0; start < count; ++start) {
    if (order[start] >= 0) continue;
    enter(start);
    while (!path.empty()) {
      Visit& top = path.back();
      if (top.at < top.next.size()) {
        const State to = top.next[top.at++].first;
        if (order[to] < 0) {
          enter(to);
        } else if (component[to] < 0) {
          low[top.state] = std::min(low[top.state], order[to]);
        }
        continue;
      }
      const State state = top.state;
      path.pop_back();
      if (!path.empty()) low[path.back().state] = std::min(low[path.back().state], low[state]);
      if (low[state] != order[state]) continue;
      for (State member = -1; member != state;) {
        member = open.back();
        open.pop_back();
        component[member] = state;
      }
    }
  }
  for (State from = 0; from < count; ++from) {
    for (const auto& [to, enters] : next_of(from)) {
      if (enters && component[to] == component[from]) return true;
    }
  }
  return false;
}

}  // namespace

// The states, made part by part.
class GrammarBuilder::Network {
 public:
  Network(const GrammarBuilder& builder, std::string_view where)
      : builder_(builder), where_(where), firsts_(builder.rules_.size(), -1) {}

  // The first state of a rule with the texts of `part`.
  State network_of(Part part) {
    const State first = add();
    const State last = add();
    nodes_[last].end = true;
    connect(part, first, last);
    return first;
  }

  ByteGrammar finish(Part whole) {
    ByteGrammar grammar;
    grammar.first = network_of(whole);
    while (!waiting_.empty()) {
      const auto [rule, first] = waiting_.back();
      waiting_.pop_back();
      PITON_ASSERT(builder_.rules_[rule] >= 0, "a rule is used and not defined");
      const State last = add();
      nodes_[last].end = true;
      connect(builder_.rules_[rule], first, last);
    }
    if (calls_itself_first(nodes_)) {
      throw Error(Fault::kUsage, "{}: refers to itself before any text; no text satisfies it",
                  where_);
    }
    const std::vector<bool> good = productive_states(nodes_);
    if (!good[grammar.first])
      throw Error(Fault::kUsage, "{}: no text satisfies it; look for contradictory limits", where_);
    for (ByteGrammar::Node& node : nodes_) {
      std::erase_if(node.bytes, [&](const auto& edge) { return !good[edge.to]; });
      std::erase_if(node.free, [&](State to) { return !good[to]; });
      std::erase_if(node.calls, [&](const auto& c) { return !good[c.to] || !good[c.first]; });
    }
    grammar.nodes = std::move(nodes_);
    return grammar;
  }

 private:
  State add() {
    if (nodes_.size() >= kMostStates)
      throw Error(Fault::kUsage, "{}: too large; use smaller numbers of repetitions", where_);
    nodes_.emplace_back();
    return static_cast<State>(nodes_.size() - 1);
  }

  State first_of(Rule rule) {
    if (firsts_[rule] < 0) {
      firsts_[rule] = add();
      waiting_.emplace_back(rule, firsts_[rule]);
    }
    return firsts_[rule];
  }

  void connect(Part part, State from, State to) {
    if (++depth_ > kDeepest) throw Error(Fault::kUsage, "{}: nested too deeply", where_);
    const Entry& entry = builder_.entries_[part];
    switch (entry.kind) {
      case Kind::kBytes:
        nodes_[from].bytes.push_back({to, entry.first, entry.last});
        break;
      case Kind::kCall: {
        const State first = first_of(entry.rule);
        nodes_[from].calls.push_back({to, first});
        break;
      }
      case Kind::kChoice:
        for (const Part one : entry.parts) connect(one, from, to);
        break;
      case Kind::kSequence:
        for (std::size_t i = 0; i + 1 < entry.parts.size(); ++i) {
          const State next = add();
          connect(entry.parts[i], from, next);
          from = next;
        }
        if (entry.parts.empty()) {
          nodes_[from].free.push_back(to);
        } else {
          connect(entry.parts.back(), from, to);
        }
        break;
      case Kind::kRepeat:
        repeat(entry, from, to);
        break;
    }
    --depth_;
  }

  void repeat(const Entry& entry, State from, State to) {
    const Part part = entry.parts.front();
    const auto step = [&] {
      const State next = add();
      connect(part, from, next);
      from = next;
    };
    for (std::int64_t i = 0; i < entry.least; ++i) step();
    if (!entry.most) {
      // A separate state, so that a loop is not entered through edges of others.
      const State loop = add();
      nodes_[from].free.push_back(loop);
      const State again = add();
      connect(part, loop, again);
      nodes_[again].free.push_back(loop);
      from = loop;
    } else {
      for (std::int64_t i = entry.least; i < *entry.most; ++i) {
        nodes_[from].free.push_back(to);
        step();
      }
    }
    nodes_[from].free.push_back(to);
  }

  const GrammarBuilder& builder_;
  std::string_view where_;
  std::vector<State> firsts_;  // of each rule; -1: not used yet
  std::vector<ByteGrammar::Node> nodes_;
  std::vector<std::pair<Rule, State>> waiting_;
  int depth_ = 0;
};

GrammarBuilder::Part GrammarBuilder::add(Entry entry) {
  entries_.push_back(std::move(entry));
  return static_cast<Part>(entries_.size() - 1);
}

GrammarBuilder::Part GrammarBuilder::bytes(std::uint8_t first, std::uint8_t last) {
  return add({.kind = Kind::kBytes, .first = first, .last = last});
}

GrammarBuilder::Part GrammarBuilder::literal(std::string_view text) {
  std::vector<Part> parts;
  for (const char c : text) {
    parts.push_back(bytes(static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c)));
  }
  return sequence(std::move(parts));
}

GrammarBuilder::Part GrammarBuilder::sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

GrammarBuilder::Part GrammarBuilder::choice(std::vector<Part> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::kChoice, .parts = std::move(parts)});
}

GrammarBuilder::Part GrammarBuilder::repeat(Part part, std::int64_t least,
                                            std::optional<std::int64_t> most) {
  if (most && *most < least) return choice({});
  return add({.kind = Kind::kRepeat, .parts = {part}, .least = least, .most = most});
}

GrammarBuilder::Rule GrammarBuilder::new_rule() {
  rules_.push_back(-1);
  return static_cast<Rule>(rules_.size() - 1);
}

void GrammarBuilder::define(Rule rule, Part part) { rules_[rule] = part; }

GrammarBuilder::Part GrammarBuilder::call(Rule rule) {
  return add({.kind = Kind::kCall, .rule = rule});
}

ByteGrammar GrammarBuilder::finish(Part whole, std::string_view where) const {
  return Network(*this, where).finish(whole);
}

}  // namespace piton
