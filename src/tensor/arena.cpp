// Best fit over free blocks; neighbours are joined when a slot comes back.
#include "tensor/arena.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::int64_t kAlignment = 64;  // one cache line, and the widest vector load

std::int64_t round_up(std::int64_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

struct Block {
  int segment = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

using Fences = std::vector<std::shared_ptr<Fence>>;

}  // namespace

std::string_view name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kParameters:
      return "parameters";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kOptimizer:
      return "optimizer";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kCommunication:
      return "communication";
  }
  return "?";
}

struct Arena::State {
  struct Segment {
    std::byte* data;
    std::int64_t bytes;
  };
  struct Pending {  // a slot without tensors whose fences may be incomplete
    Block block;
    MemoryKind kind;
    Fences fences;
  };

  State(Memory& memory, std::int64_t segment_bytes)
      : memory(memory), segment_bytes(round_up(segment_bytes)) {}

  // Every function below is called with `mutex` held.

  // Finds a free block, splits it and returns the front; false if none is large enough.
  bool take(std::int64_t bytes, Block* block) {
    const auto found = by_size.lower_bound({bytes, 0, 0});
    if (found == by_size.end()) return false;
    const auto [size, segment, offset] = *found;
    by_size.erase(found);
    by_place.erase({segment, offset});
    if (size > bytes) insert({segment, offset + bytes, size - bytes});
    *block = {segment, offset, bytes};
    return true;
  }

  void insert(const Block& block) {
    by_place[{block.segment, block.offset}] = block.bytes;
    by_size.insert({block.bytes, block.segment, block.offset});
  }

  void put(Block block) {
    auto next = by_place.lower_bound({block.segment, block.offset});
    if (next != by_place.end() && next->first.first == block.segment &&
        next->first.second == block.offset + block.bytes) {
      block.bytes += next->second;
      by_size.erase({next->second, next->first.first, next->first.second});
      next = by_place.erase(next);
    }
    if (next != by_place.begin()) {
      const auto previous = std::prev(next);
      if (previous->first.first == block.segment &&
          previous->first.second + previous->second == block.offset) {
        block.offset = previous->first.second;
        block.bytes += previous->second;
        by_size.erase({previous->second, previous->first.first, previous->first.second});
        by_place.erase(previous);
      }
    }
    insert(block);
  }

  void give_back(const Block& block, MemoryKind kind) {
    counts.in_use_bytes[static_cast<std::size_t>(kind)] -= block.bytes;
    total_bytes -= block.bytes;
    put(block);
  }

  // Takes back what is complete.
  void reap() {
    std::erase_if(pending, [&](Pending& slot) {
      for (const auto& fence : slot.fences) {
        if (!fence->complete()) return false;
      }
      give_back(slot.block, slot.kind);
      return true;
    });
  }

  // Takes back everything, once it is complete; what failed is complete too. Returns what the first
  // failure threw.
  std::exception_ptr reap_all() {
    std::exception_ptr first;
    for (const Pending& slot : pending) {
      for (const auto& fence : slot.fences) {
        try {
          fence->wait();
        } catch (...) {
          if (!first) first = std::current_exception();
        }
      }
    }
    reap();
    return first;
  }

  void grow(std::int64_t bytes) {
    const std::int64_t size = std::max(bytes, segment_bytes);
    std::byte* data = memory.allocate(size);
    segments.push_back({data, size});
    counts.reserved_bytes += size;
    ++counts.system_allocations;
    put({static_cast<int>(segments.size()) - 1, 0, size});
  }

  std::mutex mutex;
  Memory& memory;
  const std::int64_t segment_bytes;
  std::vector<Segment> segments;
  std::map<std::pair<int, std::int64_t>, std::int64_t> by_place;
  std::set<std::tuple<std::int64_t, int, std::int64_t>> by_size;
  std::vector<Pending> pending;
  MemoryCounts counts;
  std::int64_t total_bytes = 0;
  std::int64_t live = 0;  // slots with tensors
};

namespace {

// Gives its slot back when the last tensor goes.
template <typename State>
class ArenaStorage final : public Storage {
 public:
  ArenaStorage(std::byte* data, std::int64_t bytes, Block block, MemoryKind kind,
               std::shared_ptr<State> state)
      : Storage(data, bytes, state->memory.place()),
        block_(block),
        kind_(kind),
        state_(std::move(state)) {}

  ~ArenaStorage() override {
    const std::scoped_lock lock(state_->mutex);
    --state_->live;
    std::erase_if(fences_, [](const auto& fence) { return fence->complete(); });
    if (fences_.empty()) {
      state_->give_back(block_, kind_);
    } else {
      state_->pending.push_back({block_, kind_, std::move(fences_)});
    }
  }

  const std::shared_ptr<State>& state() const { return state_; }

  void hold(std::shared_ptr<Fence> fence) {
    const std::scoped_lock lock(state_->mutex);
    std::erase_if(fences_, [](const auto& old) { return old->complete(); });
    fences_.push_back(std::move(fence));
  }

 private:
  Block block_;
  MemoryKind kind_;
  std::shared_ptr<State> state_;
  Fences fences_;
};

}  // namespace

Arena::Arena(Memory& memory, std::int64_t segment_bytes)
    : state_(std::make_shared<State>(memory, segment_bytes)) {}

Arena::~Arena() {
  const std::scoped_lock lock(state_->mutex);
  PITON_ASSERT(state_->live == 0, "arena: {} slots still have tensors", state_->live);
  state_->reap_all();  // a lost rank has been reported where its work was waited for
  for (const auto& segment : state_->segments) {
    state_->memory.release(segment.data, segment.bytes);
  }
}

Tensor Arena::allocate(DType dtype, const Shape& shape, MemoryKind kind) {
  for (const std::int64_t size : shape.sizes()) {
    PITON_ASSERT(size >= 0, "arena: {} of shape {}", name(kind), to_string(shape));
  }
  const std::int64_t bytes = round_up(shape.elements() * size_bytes(dtype));
  State& state = *state_;
  std::byte* data = nullptr;
  Block block;
  {
    const std::scoped_lock lock(state.mutex);
    state.reap();
    if (!state.take(bytes, &block)) {
      try {
        state.grow(bytes);
      } catch (const Error& error) {
        // The system has no more: what is still being sent or reduced is worth waiting for.
        if (const std::exception_ptr lost = state.reap_all()) std::rethrow_exception(lost);
        const auto& in_use = state.counts.in_use_bytes;
        const auto most = std::max_element(in_use.begin(), in_use.end());
        const auto holder = static_cast<MemoryKind>(most - in_use.begin());
        if (state.by_size.lower_bound({bytes, 0, 0}) == state.by_size.end()) {
          throw Error(Fault::kMemory,
                      "memory: no room for {} of {} ({} {}): {} in use, most of it {} ({}); {}",
                      mebibytes(bytes), name(kind), name(dtype), to_string(shape),
                      mebibytes(state.total_bytes), name(holder), mebibytes(*most), error.what());
        }
      }
      const bool taken = state.take(bytes, &block);
      PITON_ASSERT(taken, "arena: no block of {} bytes after growing", bytes);
    }
    MemoryCounts& counts = state.counts;
    const auto index = static_cast<std::size_t>(kind);
    counts.in_use_bytes[index] += bytes;
    counts.peak_bytes[index] = std::max(counts.peak_bytes[index], counts.in_use_bytes[index]);
    state.total_bytes += bytes;
    counts.peak_total_bytes = std::max(counts.peak_total_bytes, state.total_bytes);
    ++counts.slots;
    ++state.live;
    data = state.segments[static_cast<std::size_t>(block.segment)].data + block.offset;
  }
  auto storage = std::make_shared<ArenaStorage<State>>(data, bytes, block, kind, state_);
  return Tensor(std::move(storage), 0, dtype, shape);
}

void Arena::hold(const Tensor& tensor, std::shared_ptr<Fence> fence) {
  if (!tensor.defined() || !fence) return;
  auto* storage = dynamic_cast<ArenaStorage<State>*>(tensor.storage().get());
  if (storage == nullptr || storage->state() != state_) return;
  storage->hold(std::move(fence));
}

MemoryCounts Arena::counts() const {
  const std::scoped_lock lock(state_->mutex);
  state_->reap();
  return state_->counts;
}

Memory& Arena::memory() const { return state_->memory; }

}  // namespace piton
