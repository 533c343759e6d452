// The ranks that share the sequences of a micro-batch (context parallelism), and how attention sees
// the keys of the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace piton {

enum class ContextExchange : std::uint8_t {
  kRing,   // keys and values travel around (Liu et al. 2023, arXiv:2310.01889)
  kHeads,  // all-to-all: whole sequences of some heads (Jacobs et al. 2023, arXiv:2309.14509)
  // Runs of neighboring ranks exchange heads, and rings have one rank of each run (Fang and Zhao
  // 2024, arXiv:2405.07719).
  kHeadsAndRing,
  kGather,  // each rank gets the keys and values of all (Grattafiori et al. 2024, arXiv:2407.21783)
};
inline constexpr std::size_t kContextExchanges = 4;

// The exchanges of a model's layers.
struct ContextForms {
  std::vector<ContextExchange> exchanges{ContextExchange::kRing};  // of each layer, or one of all
  int heads = 1;   // ranks of a run that exchanges heads, under kHeadsAndRing
  int slices = 0;  // ContextGroup::slices

  ContextExchange of_layer(std::int64_t layer) const {
    return exchanges.size() == 1 ? exchanges.front()
                                 : exchanges.at(static_cast<std::size_t>(layer));
  }
  bool has(ContextExchange exchange) const {
    return std::ranges::find(exchanges, exchange) != exchanges.end();
  }
  // How many of `ranks` context ranks exchange heads with one another; ranks / heads_of() see one
  // another's keys.
  int heads_of(ContextExchange exchange, int ranks) const {
    return exchange == ContextExchange::kHeads          ? ranks
           : exchange == ContextExchange::kHeadsAndRing ? heads
                                                        : 1;
  }
};

struct ContextGroup {
  Communicator* group = nullptr;  // of the context axis; null: one rank
  Communicator* heads = nullptr;  // those of `group` that exchange heads; null: none do
  Communicator* keys = nullptr;   // those that see one another's keys; null: none do
  bool gathers = false;           // they see all keys at once; else one after another, in a ring
  // Of the heads, of which one is attended to while others travel; 0: by their size.
  int slices = 0;

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
};

}  // namespace piton
