// The ranks that share the sequences of a micro-batch (context parallelism), and how attention sees
// the keys of the others.
#pragma once

#include "comm/communicator.h"
#include "comm/sequence_stretches.h"

namespace piton {

enum class ContextExchange : std::uint8_t {
  kRing,   // keys and values travel around (Liu et al. 2023, arXiv:2310.01889)
  kHeads,  // all-to-all: whole sequences of some heads (Jacobs et al. 2023, arXiv:2309.14509)
};

struct ContextGroup {
  Communicator* group = nullptr;  // of the context axis; null: one rank
  ContextExchange exchange = ContextExchange::kRing;

  int size() const { return group == nullptr ? 1 : group->size(); }
  int rank() const { return group == nullptr ? 0 : group->rank(); }
  int next() const { return (rank() + 1) % size(); }  // in the ring
  int before() const { return (rank() + size() - 1) % size(); }
  SequenceStretches stretches() const { return {rank(), size()}; }
};

}  // namespace piton
