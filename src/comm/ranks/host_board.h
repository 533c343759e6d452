// Shared memory of the ranks of one host for the whole run: a doorbell and a liveness mark for each
// rank, and one ring of bytes for each ordered pair of ranks.
#pragma once

#include <pthread.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/ranks/futex.h"
#include "comm/ranks/transport.h"

namespace piton {

// A FIFO of bytes from one rank to another. One writer, one reader.
struct ByteRing {
  std::atomic<std::uint64_t>* written;  // bytes so far; changed by the writer
  std::atomic<std::uint64_t>* read;     // bytes so far; changed by the reader
  SharedWord* wants_room;               // set by a waiting writer, cleared by the reader
  std::byte* data;
  std::int64_t capacity;  // a power of two

  std::int64_t readable() const;
  std::int64_t writable() const;
  // Both move exactly `bytes`: at most writable(), or readable().
  void write(const std::byte* from, std::int64_t bytes);
  void take(std::byte* to, std::int64_t bytes);
};

// Bytes of the ring between two of `ranks` ranks. All rings of a host take at most 64 MiB (above 64
// ranks 16 KiB each), and one at most 512 KiB: a message moves in pieces of half a ring, which
// should fit into the second-level cache of both sides.
std::int64_t ring_capacity(int ranks);

class HostBoard {
 public:
  // Collective over `host`, the ranks of this host; on the communication thread. `world_ranks`
  // are their ranks in the world.
  HostBoard(RankChannel& host, std::vector<int> world_ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int host_rank) const { return world_ranks_[host_rank]; }
  // The rank on this host of a rank of the world; -1 if it is on another host.
  int host_rank(int world_rank) const;

  Doorbell& bell(int host_rank) const { return line(host_rank).bell; }
  ByteRing ring(int from, int to) const;

  // Announces to the others that this rank ends the run, with exit code and reason (may be empty),
  // or that it has finished; and wakes them. Only the first announce_abort() counts. Call
  // announce_end() on the communication thread.
  void announce_abort(int code, std::string_view why);
  void announce_end();

  // Announces to the others for which world rank this one waits; -1: none. Communication thread.
  void report_wait(int world_rank) { line(rank_).waits_for.store(world_rank); }
  // The rank that `world_rank` waits for, the rank that this one waits for, and so on, as long as
  // they are on this host.
  std::vector<int> waits_from(int world_rank) const;

  // Describes a rank that ended too early ("rank 3 (process 4711) is gone"). Any thread.
  std::optional<std::string> lost() const;

  // Call it after announce_end().
  void free() { window_->free(); }

 private:
  enum State : std::uint32_t { kStarting, kAlive, kEnded, kAborted };
  struct Line {
    Doorbell bell;
    alignas(64) SharedWord state{0};
    std::atomic<std::int32_t> process{0};
    std::atomic<std::int32_t> code{0};
    std::atomic<std::int32_t> waits_for{-1};  // world rank
    std::atomic<std::uint32_t> why_bytes{0};  // written after `why`
    char why[1024];
    // A robust mutex, held by the rank's communication thread as long as it lives. The kernel marks
    // it when the thread dies for any reason. Unlike a check of the process number, this is safe
    // against reused numbers and PID namespaces.
    pthread_mutex_t life;
  };
  Line& line(int host_rank) const { return *reinterpret_cast<Line*>(window_->segment(host_rank)); }
  void announce(State state);
  bool is_dead(int host_rank) const;

  int rank_ = 0;
  std::vector<int> world_ranks_;
  std::int64_t ring_bytes_ = 0;
  std::mutex announcing_;
  std::unique_ptr<SharedWindow> window_;
};

}  // namespace piton
