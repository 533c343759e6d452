#include "comm/ranks/symmetric.h"

#include <new>

#include "comm/ranks/sum.h"

namespace piton {

namespace {

// Keeps `keep` alive until the last tensor is destroyed; the window owns the bytes.
class WindowStorage final : public Storage {
 public:
  WindowStorage(std::byte* data, std::int64_t bytes, Place place, std::shared_ptr<void> keep)
      : Storage(data, bytes, place), keep_(std::move(keep)) {}

 private:
  std::shared_ptr<void> keep_;
};

}  // namespace

std::int64_t WindowSymmetricMemory::segment_bytes(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64 + static_cast<std::int64_t>(sizeof(Counters));
}

void WindowSymmetricMemory::make_counters(std::byte* segment, std::int64_t bytes) {
  new (segment + (bytes + 63) / 64 * 64) Counters{};
}

WindowSymmetricMemory::WindowSymmetricMemory(RankEngine& engine, SymmetricSegments segments,
                                             SymmetricGroup group, std::function<void()> on_drop)
    : engine_(&engine),
      window_(std::move(segments.window)),
      rank_(group.rank),
      bytes_(segments.bytes),
      group_(std::move(group.name)) {
  const std::shared_ptr<void> keep(nullptr, [on_drop = std::move(on_drop)](void*) { on_drop(); });
  for (int member = 0; member < static_cast<int>(group.members.size()); ++member) {
    peers_.emplace_back(
        std::make_shared<WindowStorage>(window_->segment(member), bytes_, segments.place, keep), 0,
        DType::kU8, Shape{bytes_});
  }
}

WindowSymmetricMemory::Counters& WindowSymmetricMemory::counters(int member) const {
  return *reinterpret_cast<Counters*>(window_->segment(member) + (bytes_ + 63) / 64 * 64);
}

void WindowSymmetricMemory::signal(int member, int slot, std::int64_t /*bytes*/) {
  PITON_ASSERT(slot >= 0 && slot < kSymmetricCounters, "counter {} of {}", slot,
               kSymmetricCounters);
  Counters& theirs = counters(member);
  theirs.value[slot].fetch_add(1, std::memory_order_seq_cst);
  theirs.bell.ring();
}

void WindowSymmetricMemory::wait(int slot, std::uint64_t value) {
  PITON_ASSERT(slot >= 0 && slot < kSymmetricCounters, "counter {} of {}", slot,
               kSymmetricCounters);
  Counters& mine = counters(rank_);
  const auto start = Clock::now();
  for (;;) {
    const std::uint32_t seen = mine.bell.seen();
    const std::uint64_t now = mine.value[slot].load(std::memory_order_seq_cst);
    if (now >= value) return;
    mine.bell.wait(seen, 0.1, 0);
    if (mine.value[slot].load(std::memory_order_seq_cst) >= value) return;
    if (const auto lost = engine_->board().lost()) {
      throw Error(Fault::kPeer, "comm: {} (while group {} waited for a signal)", *lost, group_);
    }
    const double waited = std::chrono::duration<double>(Clock::now() - start).count();
    if (waited > engine_->timeout_seconds()) {
      throw Error(Fault::kPeer,
                  "comm: group {}: has waited {:.3g} s for a signal: counter {} is {}, wanted {}",
                  group_, waited, slot, now, value);
    }
  }
}

void WindowSymmetricMemory::sum(const Tensor& out, std::int64_t begin) {
  PITON_ASSERT(begin >= 0 && begin + out.bytes() <= bytes_ && out.contiguous(),
               "a sum of {} from byte {} of {}", to_string(out), begin, bytes_);
  std::vector<const std::byte*> sources;
  for (const Tensor& peer : peers_) sources.push_back(peer.raw() + begin);
  std::byte* const target = out.raw();
  reduce(out.dtype(), Reduction::kSum, sources, out.elements(), {&target, 1});
}

PrivateSymmetricMemory::PrivateSymmetricMemory(Device& device, int rank, std::int64_t bytes)
    : self_(make_single_communicator(device, "self")),
      memory_(self_->allocate_symmetric(bytes)),
      rank_(rank) {}

Tensor PrivateSymmetricMemory::peer(int member) const {
  return member == rank_ ? memory_->mine() : Tensor();
}

void PrivateSymmetricMemory::signal(int member, int slot, std::int64_t /*bytes*/) {
  PITON_ASSERT(member == rank_, "no memory is shared with member {}", member);
  memory_->signal(0, slot);
}

void PrivateSymmetricMemory::sum(const Tensor& out, std::int64_t) {
  PITON_ASSERT(false, "no memory is shared with the members on other hosts: {}", to_string(out));
}

}  // namespace piton
