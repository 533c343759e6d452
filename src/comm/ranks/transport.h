// What the engine of ranks (engine.h) needs of what joins them and moves bytes between hosts: MPI
// (comm/mpi) or sockets (comm/sockets).
//
// Calls come from the communication thread, unless the comment has "any thread". They throw
// Error(kPeer) if a rank is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/ranks/shared_window.h"

namespace piton {

// A message under way. Who destroys it before it is done gives it up: its memory has to stay until
// Transport::drop() all the same.
class Transfer {
 public:
  virtual ~Transfer() = default;
  virtual bool done() = 0;  // never blocks; once true, always true
};

// Transfers that are waited for together.
class Transfers {
 public:
  void add(std::unique_ptr<Transfer> transfer, int member) {
    open_.emplace_back(std::move(transfer), member);
  }
  bool open() const { return !open_.empty(); }
  // Whether all are done, which it then has forgotten.
  bool done() {
    while (!open_.empty() && open_.back().first->done()) open_.pop_back();
    return open_.empty();
  }
  // Adds the members whose transfers are not done to `members`, perhaps several times.
  void add_missing(std::vector<int>& members) const {
    for (const auto& [transfer, member] : open_) {
      if (!transfer->done()) members.push_back(member);
    }
  }

 private:
  std::vector<std::pair<std::unique_ptr<Transfer>, int>> open_;
};

// A group of ranks whose messages are apart from those of every other channel.
class RankChannel {
 public:
  virtual ~RankChannel() = default;
  virtual int rank() const = 0;  // of this process among the members

  // `data` must stay as it is until the transfer is done. `member` is another one. Messages of a
  // member with one tag arrive in the order in which they were sent. A message of no bytes is one
  // too. Sender and receiver give the same number of bytes.
  virtual std::unique_ptr<Transfer> send(const std::byte* data, std::int64_t bytes, int member,
                                         int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(std::byte* data, std::int64_t bytes, int member,
                                            int tag) = 0;
  virtual int largest_tag() const = 0;

  // Both are collective and block.
  virtual void barrier() = 0;
  // Memory of the members, all of whom are on one host.
  virtual std::unique_ptr<SharedWindow> share(std::int64_t segment_bytes) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;  // "MPI"

  // Collective over all ranks; the first call. Those below may be used after it.
  virtual void join() = 0;

  virtual int rank() const = 0;
  // For each rank of the world the lowest rank of its machine: those with the same one can share
  // memory.
  virtual const std::vector<int>& machine_of() const = 0;

  // Collective over `world_ranks`, which are ascending, and in the same order on all of them.
  virtual std::shared_ptr<RankChannel> make_channel(const std::vector<int>& world_ranks) = 0;

  // Moves what is under way, as far as that needs this thread: true if something has moved.
  virtual bool progress() { return false; }
  // After a failure: touches no memory of transfers any more, if that is possible.
  virtual void drop() {}

  // Tells all ranks that this one ends the run, with exit code and reason (may be empty). Any
  // thread. MPI has no way to do so; there the launcher ends the other ranks.
  virtual void announce_failure(int /*code*/, const std::string& /*why*/) {}
  // Why the run cannot continue, as learned from ranks of any host. Any thread.
  virtual std::optional<std::string> failure() const { return std::nullopt; }

  // The end of a run: waits for all ranks. Calls `check` from time to time, which may throw.
  virtual void final_barrier(const std::function<void()>& check) = 0;
  virtual void leave() = 0;  // after final_barrier(), when nothing is in use any more
  // Ends the others, if it can, and perhaps this process, which is about to end.
  virtual void abort(int code) = 0;
  // Last of all, any thread: removes the files of the job, if this is the last rank of the host
  // that uses them. The communication thread may hang meanwhile.
  virtual void remove_files() {}
};

}  // namespace piton
