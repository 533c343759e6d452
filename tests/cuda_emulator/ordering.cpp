#include "cuda_emulator/ordering.h"

#include <array>
#include <map>
#include <optional>
#include <vector>

namespace piton::emulator {
namespace {

// What a block did before its barrier number `barriers` is seen by who finds this.
struct Released {
  std::uint32_t block = 0;
  std::uint32_t barriers = 0;
};

// By threads of the running block after its barrier number `barriers`.
struct Seen {
  Released released;
  std::uint32_t barriers = 0;
};

struct Order {
  std::map<const void*, std::vector<Released>> released;  // by the word of the atomic
  std::vector<Seen> seen;
  // Of each thread of the running block: its last fence, and what it found since.
  std::array<std::optional<std::uint32_t>, kMostThreads> fences;
  std::array<std::vector<Released>, kMostThreads> found;
};

Order order;

}  // namespace

void forget_launch() {
  order.released.clear();
  forget_block();
}

void forget_block() {
  order.seen.clear();
  order.fences = {};
  for (auto& found : order.found) found.clear();
}

void note_fence() {
  const Moment& now = running_thread.moment;
  order.fences[now.thread] = now.block_barriers;
  for (const Released& one : order.found[now.thread])
    order.seen.push_back({one, now.block_barriers});
  order.found[now.thread].clear();
}

void note_atomic(const void* address) {
  const Moment& now = running_thread.moment;
  std::vector<Released>& released = order.released[address];
  order.found[now.thread].insert(order.found[now.thread].end(), released.begin(), released.end());
  if (const auto fence = order.fences[now.thread]) released.push_back({now.block, *fence});
}

bool is_ordered(const Moment& before) {
  const Moment& now = running_thread.moment;
  for (const auto& [released, barriers] : order.seen) {
    if (released.block == before.block && before.block_barriers < released.barriers &&
        barriers < now.block_barriers)
      return true;
  }
  return false;
}

}  // namespace piton::emulator
