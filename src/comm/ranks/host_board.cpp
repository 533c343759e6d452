#include "comm/ranks/host_board.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/error.h"

namespace piton {

namespace {

constexpr std::int64_t kPage = 4096;  // bytes of a line, and of the two positions of a ring

// Initializes the mutex `life` and locks it for the rest of the thread's life.
void hold(pthread_mutex_t& life) {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  const int made = pthread_mutex_init(&life, &kind);
  pthread_mutexattr_destroy(&kind);
  PITON_ASSERT(made == 0 && pthread_mutex_lock(&life) == 0, "{}", system_message(made));
}

}  // namespace

std::int64_t ring_capacity(int ranks) {
  const std::int64_t share = (std::int64_t{64} << 20) / (std::int64_t{ranks} * ranks);
  const std::int64_t capped = std::clamp<std::int64_t>(share, 16 << 10, 512 << 10);
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(capped)));
}

std::int64_t ByteRing::readable() const {
  return static_cast<std::int64_t>(written->load(std::memory_order_acquire) -
                                   read->load(std::memory_order_relaxed));
}

std::int64_t ByteRing::writable() const {
  return capacity - static_cast<std::int64_t>(written->load(std::memory_order_relaxed) -
                                              read->load(std::memory_order_acquire));
}

void ByteRing::write(const std::byte* from, std::int64_t bytes) {
  const std::uint64_t position = written->load(std::memory_order_relaxed);
  const auto offset = static_cast<std::int64_t>(position & (capacity - 1));
  const std::int64_t first = std::min(bytes, capacity - offset);
  std::memcpy(data + offset, from, first);
  if (bytes > first) std::memcpy(data, from + first, bytes - first);
  written->store(position + bytes, std::memory_order_seq_cst);
}

void ByteRing::take(std::byte* to, std::int64_t bytes) {
  const std::uint64_t position = read->load(std::memory_order_relaxed);
  const auto offset = static_cast<std::int64_t>(position & (capacity - 1));
  const std::int64_t first = std::min(bytes, capacity - offset);
  std::memcpy(to, data + offset, first);
  if (bytes > first) std::memcpy(to + first, data, bytes - first);
  read->store(position + bytes, std::memory_order_seq_cst);
}

HostBoard::HostBoard(RankChannel& host, std::vector<int> world_ranks)
    : rank_(host.rank()), world_ranks_(std::move(world_ranks)), ring_bytes_(ring_capacity(size())) {
  // A rank's segment: its line, then its incoming rings. The rank touches them first, so their
  // pages are near it.
  window_ = host.share(kPage + size() * (kPage + ring_bytes_));
  static_assert(sizeof(Line) <= kPage);
  Line* mine = new (window_->segment(rank_)) Line;
  mine->process = getpid();
  hold(mine->life);
  mine->state = kAlive;
  for (int from = 0; from < size(); ++from) {
    const ByteRing incoming = ring(from, rank_);
    new (incoming.written) std::atomic<std::uint64_t>(0);
    new (incoming.read) std::atomic<std::uint64_t>(0);
    new (incoming.wants_room) SharedWord(0);
  }
  host.barrier();
}

int HostBoard::host_rank(int world_rank) const {
  const auto found = std::find(world_ranks_.begin(), world_ranks_.end(), world_rank);
  return found == world_ranks_.end() ? -1 : static_cast<int>(found - world_ranks_.begin());
}

ByteRing HostBoard::ring(int from, int to) const {
  std::byte* base = window_->segment(to) + kPage + from * (kPage + ring_bytes_);
  return {.written = reinterpret_cast<std::atomic<std::uint64_t>*>(base),
          .read = reinterpret_cast<std::atomic<std::uint64_t>*>(base + 128),
          .wants_room = reinterpret_cast<SharedWord*>(base + 256),
          .data = base + kPage,
          .capacity = ring_bytes_};
}

void HostBoard::announce(State state) {
  line(rank_).state.store(state, std::memory_order_seq_cst);
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) bell(other).ring();
  }
}

void HostBoard::announce_abort(int code, std::string_view why) {
  const std::lock_guard lock(announcing_);
  Line& mine = line(rank_);
  if (mine.state.load() != kAlive) return;
  const std::size_t bytes = std::min(why.size(), sizeof mine.why);
  if (bytes > 0) std::memcpy(mine.why, why.data(), bytes);
  mine.why_bytes = static_cast<std::uint32_t>(bytes);
  mine.code = code;
  announce(kAborted);
}

void HostBoard::announce_end() {
  const std::lock_guard lock(announcing_);
  announce(kEnded);
  pthread_mutex_unlock(&line(rank_).life);
}

bool HostBoard::is_dead(int host_rank) const {
  pthread_mutex_t& life = line(host_rank).life;
  const int code = pthread_mutex_trylock(&life);
  if (code == EBUSY) return false;
  // Unlocking without pthread_mutex_consistent() leaves the mutex of a dead owner marked
  // (ENOTRECOVERABLE).
  if (code == 0 || code == EOWNERDEAD) pthread_mutex_unlock(&life);
  return code == EOWNERDEAD || code == ENOTRECOVERABLE;
}

std::vector<int> HostBoard::waits_from(int world_rank) const {
  std::vector<int> chain{world_rank};
  for (;;) {
    const int host = host_rank(chain.back());
    const int next = host < 0 ? -1 : line(host).waits_for.load();
    // Stop at a cycle: a rank that waits for an earlier one of the chain gives no further reason.
    if (next < 0 || next == world_ranks_[rank_] ||
        std::find(chain.begin(), chain.end(), next) != chain.end()) {
      break;
    }
    chain.push_back(next);
  }
  chain.erase(chain.begin());
  return chain;
}

std::optional<std::string> HostBoard::lost() const {
  constexpr int kPeer = static_cast<int>(Fault::kPeer);
  std::optional<std::string> consequence;
  for (int other = 0; other < size(); ++other) {
    if (other == rank_) continue;
    const Line& its = line(other);
    const std::uint32_t state = its.state.load(std::memory_order_acquire);
    if (state == kAborted) {
      const int code = its.code.load();
      const std::string_view why(its.why, its.why_bytes);
      // kPeer is only a consequence of another rank's end: look for that rank first.
      const std::string text = fmt::format(
          "rank {} ended the run with code {}{}{}", world_rank(other), code,
          code == kPeer || why.empty() ? "; its message says why" : ": ", code == kPeer ? "" : why);
      if (code != kPeer) return text;
      consequence = text;
    }
    if (state == kAlive && is_dead(other) && its.state.load() == kAlive) {
      return fmt::format(
          "rank {} (process {}) has ended without a message: killed, or out of memory",
          world_rank(other), its.process.load());
    }
  }
  return consequence;
}

}  // namespace piton
