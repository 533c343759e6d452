// Communication within one group of ranks.
//
// A collective is enqueued after all work now on a stream, and after the events that it is given
// (After); it returns an Event at once. Do not touch its tensors before the event is complete: a
// stream that uses them waits for the event, and the caller holds their arena slots with it
// (Arena::hold).
// All members of a group call the same collectives in the same order. A group of one member is
// legal: its collectives only copy, and there is no second code path for one process.
//
// Sums run in fp32 for bf16 and fp16 (fp64 for fp64), over members in the order of their world
// ranks, and are rounded once: the same bits on every member and in every run.
//
// A member that is lost or does not come within the timeout ends the wait with Error(kPeer), which
// names the collective, its number, and who is missing; it is thrown where the event is waited for.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace piton {

// What a collective follows: all work now on `stream`, and `events`: collectives of other groups
// whose result it takes. So chains of collectives are started in program order, the same on every
// rank, whatever is complete by then.
struct After {
  // Not explicit: a stream alone is the common case.
  After(Stream& after, std::vector<Event> also = {}) : stream(after), events(std::move(also)) {}
  Stream& stream;
  std::vector<Event> events;
};

enum class Reduction : std::uint8_t { kSum, kMax };

// Bytes this rank has sent since the start, by kind of collective: what the formulas predict
// (all-reduce of B bytes over n ranks: 2 B (n-1)/n).
struct TrafficCounts {
  std::int64_t all_reduce_bytes = 0;
  std::int64_t all_gather_bytes = 0;
  std::int64_t reduce_scatter_bytes = 0;
  std::int64_t broadcast_bytes = 0;
  std::int64_t point_to_point_bytes = 0;
  std::int64_t received_bytes = 0;  // by all of these together
  std::int64_t collectives = 0;
};

// Memory that every member of a group can address where the hardware allows it (ranks of one host).
// Member m's part is peer(m), empty if m is on another host. Flat gradient buffers live here.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  virtual Tensor mine() const = 0;            // u8 [bytes]
  virtual Tensor peer(int member) const = 0;  // u8 [bytes] or empty
  // Counters for flow control between members, ordered with memory: signal(m, slot) adds 1 to
  // member m's counter; wait(slot, value) blocks until this member's counter is at least value.
  virtual void signal(int member, int slot) = 0;
  virtual void wait(int slot, std::uint64_t value) = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // "tensor", "data", ...
  // False where the other members do not exist (comm/virtual): what they would say is made up.
  virtual bool real() const { return true; }

  // data[i] = reduction over members. fp64, fp32, bf16, fp16, int64; contiguous.
  virtual Event all_reduce(const Tensor& data, Reduction reduction, const After& after) = 0;
  // out = the members' `mine`, in order of rank, along dim 0; may not overlap unless mine is its
  // own place in out.
  virtual Event all_gather(const Tensor& out, const Tensor& mine, const After& after) = 0;
  // mine = the sum over members of their slice number rank() of `all` along dim 0; may not overlap
  // unless mine is its own place in all. The rest of `all` may be overwritten.
  virtual Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) = 0;
  virtual Event broadcast(const Tensor& data, int root, const After& after) = 0;
  // Messages match by (member, tag), in order within a tag. A send completes when `data` may be
  // reused. Tags are 0 .. largest_tag().
  virtual Event send(const Tensor& data, int member, int tag, Stream& after) = 0;
  virtual Event receive(const Tensor& data, int member, int tag, Stream& after) = 0;
  virtual int largest_tag() const { return std::numeric_limits<int>::max(); }

  // Host bytes of every member, in order of rank; blocks. For setup, checks and small results.
  virtual std::vector<std::string> gather_bytes(const std::string& mine) = 0;
  virtual void barrier() = 0;  // of hosts; blocks

  // Collective. `bytes` the same on every member.
  virtual std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) = 0;

  virtual TrafficCounts traffic() const = 0;
};

// All ranks of a run, and how groups are made.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_rank() const = 0;  // among the ranks of this host
  virtual int host_size() const = 0;

  // Collective over `ranks` (world ranks, ascending, containing rank()). All members create their
  // groups in the same order.
  virtual std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                                   const std::string& name) = 0;

  // Says that this rank cannot go on, and why: its own waits end with Error(kPeer) at once, and so
  // do those of the other ranks of this host, whose message gives `code` (the exit code that this
  // rank will end with) and `why`. To be called before the run's resources are released, where
  // an exception takes it down. The world is of no further use but for abort().
  virtual void fail(int /*code*/, const std::string& /*why*/) {}

  // Ends every rank of the run soon, whatever they do; `code` is the exit code asked for. Does not
  // return.
  [[noreturn]] virtual void abort(int code) = 0;
  virtual TrafficCounts traffic() const = 0;  // of all groups
};

// One process: every group has one member.
std::unique_ptr<World> make_single_world(Device& device);

// A group of one: collectives copy or do nothing.
std::unique_ptr<Communicator> make_single_communicator(Device& device, std::string name);

}  // namespace piton
