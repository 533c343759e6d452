// Best fit over free blocks. A block that is freed with fences is joined to its neighbors only when
// a request needs more than one of them, because that request then waits for all of their fences.
#include "tensor/arena.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "base/amounts.h"
#include "base/error.h"
#include "base/platform.h"
#include "tensor/held_storage.h"

namespace piton {
namespace {

constexpr std::int64_t kAlignment = 64;  // one cache line, and the widest vector load
// In builds for tests, whose sanitizers pay for each byte of a segment, used or not.
constexpr std::int64_t kMostOfTestBuilds = std::int64_t{4} << 20;

std::int64_t round_up(std::int64_t bytes) {
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

struct ArenaBlock {
  int segment = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

using Fences = std::vector<std::shared_ptr<Fence>>;

}  // namespace

void Fence::set_waited_by(const StreamIdentity& stream) {
  const std::scoped_lock lock(mutex_);
  waited_by_ = stream;
}

bool Fence::waited_by(const StreamIdentity& stream) const {
  const std::scoped_lock lock(mutex_);
  return stream != nullptr && waited_by_ == stream;
}

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
  struct FreeBlock {
    std::int64_t bytes = 0;
    Fences fences;
  };
  using FreeBlocks = std::map<std::pair<int, std::int64_t>, FreeBlock>;  // by segment and offset
  // Adjacent free blocks, treated as one.
  struct Run {
    FreeBlocks::iterator begin;
    std::int64_t bytes = 0;
  };

  State(Memory& memory, std::int64_t segment_bytes)
      : memory(memory),
        segment_bytes(round_up(kFaultInjection ? std::min(segment_bytes, kMostOfTestBuilds)
                                               : segment_bytes)) {}

  // Every function below is called with `mutex` held.

  // The smallest run of at least `bytes` whose blocks all satisfy `usable`, the first of equal
  // ones.
  template <typename Usable>
  Run best_run(std::int64_t bytes, Usable usable) {
    Run best{.begin = free.end()};
    for (auto block = free.begin(); block != free.end();) {
      if (!usable(block->second)) {
        ++block;
        continue;
      }
      Run run{.begin = block};
      auto next = block;
      do {
        run.bytes += next->second.bytes;
        ++next;
      } while (next != free.end() && next->first.first == block->first.first &&
               next->first.second == block->first.second + run.bytes && usable(next->second));
      if (run.bytes >= bytes && (best.bytes == 0 || run.bytes < best.bytes)) best = run;
      block = next;
    }
    return best;
  }

  // Same result as best_run() if no free block has fences: then no two free blocks are adjacent.
  Run best_block(std::int64_t bytes) {
    const auto found = by_size.lower_bound({bytes, 0, 0});
    if (found == by_size.end()) return {.begin = free.end()};
    const auto [size, segment, offset] = *found;
    return {.begin = free.find({segment, offset}), .bytes = size};
  }

  // Only these two functions change `free`.
  FreeBlocks::iterator insert(std::pair<int, std::int64_t> place, FreeBlock block) {
    if (block.fences.empty()) {
      by_size.insert({block.bytes, place.first, place.second});
    } else {
      ++fenced;
    }
    const auto [here, is_new] = free.insert({place, std::move(block)});
    PITON_ASSERT(is_new, "arena: a slot came back twice");
    return here;
  }
  FreeBlock remove(FreeBlocks::iterator here) {
    if (here->second.fences.empty()) {
      by_size.erase({here->second.bytes, here->first.first, here->first.second});
    } else {
      --fenced;
    }
    FreeBlock block = std::move(here->second);
    free.erase(here);
    return block;
  }

  // Takes the front of a run of free blocks, and the fences of the blocks it takes; false if no run
  // is large enough.
  bool take(std::int64_t bytes, const StreamIdentity& user, ArenaBlock* block, Fences* fences) {
    Run run = fenced == 0 ? best_block(bytes) : best_run(bytes, [&](const FreeBlock& one) {
      return std::ranges::all_of(one.fences,
                                 [&](const auto& fence) { return fence->waited_by(user); });
    });
    if (run.bytes == 0 && fenced > 0) {
      run = best_run(bytes, [](const FreeBlock&) { return true; });
    }
    if (run.bytes == 0) return false;
    const auto [segment, offset] = run.begin->first;
    *block = {segment, offset, bytes};
    auto at = run.begin;
    for (std::int64_t left = bytes; left > 0;) {
      const auto next = std::next(at);
      FreeBlock taken = remove(at);
      at = next;
      fences->insert(fences->end(), taken.fences.begin(), taken.fences.end());
      if (taken.bytes > left) {
        insert({segment, offset + bytes}, {taken.bytes - left, std::move(taken.fences)});
      }
      left -= std::min(left, taken.bytes);
    }
    return true;
  }

  // The parts of `range` that are in free blocks without fences.
  std::vector<MemoryRange> free_parts(const MemoryRange& range) const {
    std::vector<MemoryRange> parts;
    for (auto segment = segments.begin(); segment != segments.end(); ++segment) {
      const std::int64_t begin = std::max<std::int64_t>(range.data - segment->data, 0);
      const std::int64_t end =
          std::min<std::int64_t>(range.data + range.bytes - segment->data, segment->bytes);
      if (begin >= end) continue;
      const int index = static_cast<int>(segment - segments.begin());
      auto block = free.upper_bound({index, begin});
      if (block != free.begin()) --block;
      for (; block != free.end() && block->first < std::pair{index, end}; ++block) {
        if (block->first.first != index || !block->second.fences.empty()) continue;
        const std::int64_t from = std::max(begin, block->first.second);
        const std::int64_t to = std::min(end, block->first.second + block->second.bytes);
        if (from < to) parts.push_back({segment->data + from, to - from});
      }
    }
    return parts;
  }

  // Frees a block. Blocks without fences are joined with their neighbors at once.
  void put(const ArenaBlock& block, Fences fences) {
    std::pair<int, std::int64_t> place{block.segment, block.offset};
    FreeBlock put{block.bytes, std::move(fences)};
    if (put.fences.empty()) {
      const auto next = free.lower_bound(place);
      if (next != free.end() && next->second.fences.empty() &&
          next->first == std::pair{place.first, place.second + put.bytes}) {
        put.bytes += remove(next).bytes;
      }
      const auto after = free.lower_bound(place);
      if (after != free.begin()) {
        const auto previous = std::prev(after);
        if (previous->second.fences.empty() && previous->first.first == place.first &&
            previous->first.second + previous->second.bytes == place.second) {
          place = previous->first;
          put.bytes += remove(previous).bytes;
        }
      }
    }
    insert(place, std::move(put));
  }

  void give_back(const ArenaBlock& block, MemoryKind kind, Fences fences) {
    counts.in_use_bytes[static_cast<std::size_t>(kind)] -= block.bytes;
    total_bytes -= block.bytes;
    --live;
    put(block, std::move(fences));
  }

  void grow(std::int64_t bytes) {
    if (noted != nullptr)
      throw Error(Fault::kMemory, "recorded work has only the memory of equal work before it");
    const std::int64_t size = std::max(bytes, segment_bytes);
    std::byte* data = memory.allocate(size);
    segments.push_back({data, size});
    counts.reserved_bytes += size;
    ++counts.system_allocations;
    put({static_cast<int>(segments.size()) - 1, 0, size}, {});
  }

  std::mutex mutex;
  Memory& memory;
  const std::int64_t segment_bytes;
  std::vector<Segment> segments;
  FreeBlocks free;
  std::set<std::tuple<std::int64_t, int, std::int64_t>> by_size;  // free blocks without fences
  std::int64_t fenced = 0;                                        // free blocks with fences
  MemoryCounts counts;
  std::int64_t total_bytes = 0;
  std::int64_t live = 0;  // slots with tensors
  std::function<void(const std::byte*, std::int64_t)> saw;
  std::vector<MemoryRange>* noted = nullptr;  // by used_by(): gets every request
};

namespace {

// What a tensor of the arena has: `bytes` at `data`, in a block.
struct ArenaSlot {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
  ArenaBlock block;
  MemoryKind kind = MemoryKind::kParameters;
};

// Frees its slot when the last tensor is destroyed.
template <typename State>
class ArenaStorage final : public HeldStorage {
 public:
  ArenaStorage(const ArenaSlot& slot, StreamIdentity user, std::shared_ptr<State> state)
      : HeldStorage(slot.data, slot.bytes, state->memory.place()),
        block_(slot.block),
        kind_(slot.kind),
        user_(std::move(user)),
        state_(std::move(state)) {}

  ~ArenaStorage() override {
    const std::scoped_lock lock(state_->mutex);
    clear_waited_fences();
    state_->give_back(block_, kind_, std::move(fences_));
  }

  const std::shared_ptr<State>& state() const { return state_; }
  MemoryKind kind() const { return kind_; }

  void hold(std::shared_ptr<Fence> fence) {
    const std::scoped_lock lock(state_->mutex);
    clear_waited_fences();
    if (std::ranges::find(fences_, fence) == fences_.end()) fences_.push_back(std::move(fence));
  }

  // Makes `user` (null: the host) wait for the fences of the slot. A wait that throws counts as
  // done: its error is reported once, and the slot is freed with the remaining fences.
  void wait_for(Fences fences, MemoryUser* user) {
    fences_ = std::move(fences);
    while (!fences_.empty()) {
      const std::shared_ptr<Fence> fence = fences_.back();
      fences_.pop_back();
      if (user != nullptr) {
        user->wait_for(fence);
      } else {
        fence->wait();
      }
    }
  }

 private:
  void clear_waited_fences() {
    std::erase_if(fences_, [this](const auto& fence) { return fence->waited_by(user_); });
  }

  ArenaBlock block_;
  MemoryKind kind_;
  StreamIdentity user_;
  std::shared_ptr<State> state_;
  Fences fences_;
};

}  // namespace

Arena::Arena(Memory& memory, std::int64_t segment_bytes)
    : state_(std::make_shared<State>(memory, segment_bytes)) {}

Arena::~Arena() {
  Fences fences;
  {
    const std::scoped_lock lock(state_->mutex);
    PITON_ASSERT(state_->live == 0, "arena: {} slots still have tensors", state_->live);
    for (const auto& [place, block] : state_->free) {
      fences.insert(fences.end(), block.fences.begin(), block.fences.end());
    }
  }
  // Without the lock: who completes a fence may hold another lock while tensors are freed.
  for (const std::shared_ptr<Fence>& fence : fences) {
    try {
      fence->wait();
    } catch (...) {  // the wait for the lost rank's work has already reported it
    }
  }
  for (const auto& segment : state_->segments) {
    state_->memory.release(segment.data, segment.bytes);
  }
}

Tensor Arena::allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser& user) {
  return allocate(dtype, shape, kind, &user);
}

Tensor Arena::allocate(DType dtype, const Shape& shape, MemoryKind kind) {
  return allocate(dtype, shape, kind, nullptr);
}

Tensor Arena::allocate(DType dtype, const Shape& shape, MemoryKind kind, MemoryUser* user) {
  for (const std::int64_t size : shape.sizes()) {
    PITON_ASSERT(size >= 0, "arena: {} of shape {}", name(kind), to_string(shape));
  }
  const std::int64_t bytes = round_up(shape.elements() * size_bytes(dtype));
  const StreamIdentity identity = user != nullptr ? user->identity() : nullptr;
  State& state = *state_;
  std::byte* data = nullptr;
  ArenaBlock block;
  Fences fences;
  {
    const std::scoped_lock lock(state.mutex);
    if (!state.take(bytes, identity, &block, &fences)) {
      try {
        state.grow(bytes);
      } catch (const Error& error) {
        const auto& in_use = state.counts.in_use_bytes;
        const auto most = std::max_element(in_use.begin(), in_use.end());
        const auto holder = static_cast<MemoryKind>(most - in_use.begin());
        throw Error(
            error.fault(),
            "memory: no room for {:.1f} MiB of {} ({} {}): {:.1f} MiB in use, most of it {} "
            "({:.1f} MiB); {}",
            mebibytes(bytes), name(kind), name(dtype), to_string(shape),
            mebibytes(state.total_bytes), name(holder), mebibytes(*most), error.what());
      }
      const bool taken = state.take(bytes, identity, &block, &fences);
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
    if (state.saw) state.saw(data, bytes);
    if (state.noted != nullptr) state.noted->push_back({data, bytes});
  }
  auto storage =
      std::make_shared<ArenaStorage<State>>(ArenaSlot{data, bytes, block, kind}, identity, state_);
  if (!fences.empty())
    storage->wait_for(std::move(fences), user);  // without the lock: a wait may be long
  return Tensor(std::move(storage), 0, dtype, shape);
}

void Arena::hold(const Tensor& tensor, std::shared_ptr<Fence> fence) {
  if (!tensor.defined() || !fence) return;
  auto* storage = dynamic_cast<ArenaStorage<State>*>(tensor.storage().get());
  if (storage == nullptr || storage->state() != state_) return;
  storage->hold(std::move(fence));
}

std::optional<MemoryKind> Arena::kind_of(const Tensor& tensor) const {
  const auto* storage = dynamic_cast<const ArenaStorage<State>*>(tensor.storage().get());
  if (storage == nullptr || storage->state() != state_) return {};
  return storage->kind();
}

void Arena::settle(MemoryUser& user) {
  Fences fences;
  {
    const std::scoped_lock lock(state_->mutex);
    for (const auto& [place, block] : state_->free) {
      fences.insert(fences.end(), block.fences.begin(), block.fences.end());
    }
  }
  for (const std::shared_ptr<Fence>& fence : fences) user.wait_for(fence);
  const std::scoped_lock lock(state_->mutex);
  std::vector<ArenaBlock> settled;
  for (auto block = state_->free.begin(); block != state_->free.end();) {
    const auto here = block++;
    const bool waited = std::ranges::all_of(
        here->second.fences, [&](const auto& fence) { return fence->waited_by(user.identity()); });
    if (here->second.fences.empty() || !waited) continue;
    settled.push_back({here->first.first, here->first.second, here->second.bytes});
    state_->remove(here);
  }
  for (const ArenaBlock& block : settled) state_->put(block, {});
}

std::vector<MemoryRange> Arena::used_by(const std::function<void()>& record) {
  std::vector<MemoryRange> asked;
  const auto note = [this](std::vector<MemoryRange>* to) {
    const std::scoped_lock lock(state_->mutex);
    state_->noted = to;
  };
  note(&asked);
  try {
    record();
  } catch (...) {
    note(nullptr);
    throw;
  }
  note(nullptr);
  std::ranges::sort(asked, {}, &MemoryRange::data);
  std::vector<MemoryRange> joined;
  for (const MemoryRange& range : asked) {
    if (joined.empty() || joined.back().data + joined.back().bytes < range.data) {
      joined.push_back(range);
    } else {
      MemoryRange& last = joined.back();
      last.bytes = std::max(last.bytes, range.data + range.bytes - last.data);
    }
  }
  std::vector<MemoryRange> given_back;
  const std::scoped_lock lock(state_->mutex);
  for (const MemoryRange& range : joined) {
    const std::vector<MemoryRange> parts = state_->free_parts(range);
    given_back.insert(given_back.end(), parts.begin(), parts.end());
  }
  return given_back;
}

bool Arena::is_free(const std::vector<MemoryRange>& memory) const {
  const std::scoped_lock lock(state_->mutex);
  return std::ranges::all_of(memory, [&](const MemoryRange& range) {
    std::int64_t bytes = 0;
    for (const MemoryRange& part : state_->free_parts(range)) bytes += part.bytes;
    return bytes == range.bytes;
  });
}

MemoryCounts Arena::counts() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->counts;
}

void Arena::observe(std::function<void(const std::byte*, std::int64_t)> saw) {
  const std::scoped_lock lock(state_->mutex);
  state_->saw = std::move(saw);
}

Memory& Arena::memory() const { return state_->memory; }

}  // namespace piton
