#include "generate/constraints/grammar_walk.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace piton {
namespace {

constexpr GrammarWalk::Position kUnknown = -2;

}  // namespace

GrammarWalk::GrammarWalk(std::shared_ptr<const ByteGrammar> grammar)
    : grammar_(std::move(grammar)) {
  start_ = place_of({{grammar_->first, -1}});
}

GrammarWalk::Callers GrammarWalk::callers_of(CallerFacts facts) {
  const auto [found, is_new] = call_numbers_.emplace(facts, static_cast<Callers>(calls_.size()));
  if (is_new) calls_.push_back(facts);
  return found->second;
}

// Follows edges without bytes, calls and returns.
GrammarWalk::Position GrammarWalk::place_of(std::vector<Thread> entered) {
  std::set<Thread> seen(entered.begin(), entered.end());
  std::vector<Thread> threads;
  bool may_end = false;
  const auto enter = [&](Thread thread) {
    if (seen.insert(thread).second) entered.push_back(thread);
  };
  while (!entered.empty()) {
    const Thread thread = entered.back();
    entered.pop_back();
    const ByteGrammar::Node& node = grammar_->nodes[thread.state];
    if (!node.bytes.empty()) threads.push_back(thread);
    for (const ByteGrammar::State to : node.free) enter({to, thread.callers});
    for (const ByteGrammar::Call& call : node.calls) {
      const ByteGrammar::Node& back = grammar_->nodes[call.to];
      const bool only_returns =
          back.end && back.bytes.empty() && back.free.empty() && back.calls.empty();
      // A call at the end of a rule needs no return to it, so that a list of any length is read
      // with few callers.
      enter({call.first, only_returns ? thread.callers : callers_of({call.to, thread.callers})});
    }
    if (!node.end) continue;
    if (thread.callers < 0) {
      may_end = true;
    } else {
      enter({calls_[thread.callers].back_to, calls_[thread.callers].outer});
    }
  }
  if (threads.empty() && !may_end) return kDead;
  std::sort(threads.begin(), threads.end());
  const auto [found, is_new] =
      numbers_.try_emplace(std::pair(threads, may_end), static_cast<Position>(places_.size()));
  if (is_new) {
    PositionFacts& facts = places_.emplace_back();
    facts.threads = std::move(threads);
    facts.may_end = may_end;
    facts.next.fill(kUnknown);
  }
  return found->second;
}

GrammarWalk::Position GrammarWalk::after(Position from, std::uint8_t byte) {
  PITON_ASSERT(from >= 0);
  const Position known = places_[from].next[byte];
  if (known != kUnknown) return known;
  std::vector<Thread> entered;
  for (const Thread& thread : places_[from].threads) {
    for (const ByteGrammar::ByteEdge& edge : grammar_->nodes[thread.state].bytes) {
      if (edge.first <= byte && byte <= edge.last) entered.push_back({edge.to, thread.callers});
    }
  }
  const Position next = place_of(std::move(entered));
  places_[from].next[byte] = next;
  return next;
}

GrammarWalk::Position GrammarWalk::forget_others(Position kept) {
  std::vector<Thread> threads = std::move(places_[kept].threads);
  const bool may_end = places_[kept].may_end;
  // Callers are renumbered too, from the outermost.
  const std::vector<CallerFacts> old = std::move(calls_);
  calls_.clear();
  call_numbers_.clear();
  numbers_.clear();
  places_.clear();
  std::map<Callers, Callers> renumbered = {{-1, -1}};
  for (Thread& thread : threads) {
    std::vector<Callers> path;
    for (Callers at = thread.callers; !renumbered.contains(at); at = old[at].outer) {
      path.push_back(at);
    }
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      renumbered[*at] = callers_of({old[*at].back_to, renumbered[old[*at].outer]});
    }
    thread.callers = renumbered[thread.callers];
  }
  std::sort(threads.begin(), threads.end());
  PositionFacts& facts = places_.emplace_back();
  facts.may_end = may_end;
  facts.next.fill(kUnknown);
  facts.threads = threads;
  numbers_.emplace(std::pair(std::move(threads), may_end), 0);
  start_ = place_of({{grammar_->first, -1}});
  return 0;
}

}  // namespace piton
