// What the ranks of one host share for the whole run: a doorbell and a sign of life for each rank,
// and one ring of bytes for each ordered pair of them.
#pragma once

#include <mpi.h>
#include <pthread.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi/futex.h"
#include "comm/mpi/shared_window.h"

namespace piton {

// Bytes from one rank to another, first in, first out. One writer, one reader.
struct ByteRing {
  std::atomic<std::uint64_t>* written;  // by the writer
  std::atomic<std::uint64_t>* read;     // by the reader
  SharedWord* wants_room;               // set by a writer that waits, cleared by the reader
  std::byte* data;
  std::int64_t capacity;  // a power of two

  std::int64_t readable() const;
  std::int64_t writable() const;
  // Exactly `bytes`, which must fit.
  void write(const std::byte* from, std::int64_t bytes);
  void take(std::byte* to, std::int64_t bytes);
};

// Bytes of a ring between two of `ranks`: all rings of a host together take at most 64 MiB (above
// 64 ranks 16 KiB each), and one at most 512 KiB: a message moves in pieces of half a ring, and
// half a ring is to fit the second-level cache of either side.
std::int64_t ring_capacity(int ranks);

class HostBoard {
 public:
  // Collective over `host`, the ranks that share this machine; on the communication thread.
  // `world_ranks` are their ranks in the world.
  HostBoard(MPI_Comm host, std::vector<int> world_ranks);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int host_rank) const { return world_ranks_[host_rank]; }
  // Rank on this host of a rank of the world; -1: it is on another host.
  int host_rank(int world_rank) const;

  Doorbell& bell(int host_rank) const { return line(host_rank).bell; }
  ByteRing ring(int from, int to) const;

  // Says to the others that this rank ends the run (the first time counts), and why (may be empty);
  // or that it has finished; and wakes them. The latter on the communication thread.
  void announce_abort(int code, std::string_view why);
  void announce_end();

  // Says to the others for which rank of the world this one waits; -1: for none. Communication
  // thread.
  void say_wait(int world_rank) { line(rank_).waits_for.store(world_rank); }
  // For whom a rank waits, for whom that one does, and so on, as far as they are of this host.
  std::vector<int> waits_from(int world_rank) const;

  // A rank that ended before its time, in words ("rank 3 (process 4711) is gone"). Any thread.
  std::optional<std::string> lost() const;

  // After announce_end().
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
    // Held by the rank's communication thread for as long as it lives. The kernel marks it when the
    // thread dies, however it does: a sign of death that neither a process number that is used
    // again nor a namespace of process numbers can counterfeit.
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
