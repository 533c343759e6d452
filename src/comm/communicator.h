// Communication within one group of ranks.
//
// A collective starts after all work that is on a stream at the time of the call, and after a list
// of events (struct After). The call returns an Event at once. Do not touch the tensors until the
// event is complete: a stream that uses them waits for it, and the caller passes its fence to
// Arena::hold, so that their memory is not reused early.
//
// All members of a group call the same collectives in the same order. A group of one member is
// legal: its collectives only copy, so one process needs no separate code path.
//
// Sums run in fp32 for fp32, bf16 and fp16 (in fp64 for fp64), over members in the order of their
// world ranks, and are rounded once. Every member gets the same bits, in every run.
//
// If a member is lost or does not join within the timeout, waiting for the event throws
// Error(kPeer). The message names the collective, its number and the missing members.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/row_counts.h"
#include "device/device.h"

namespace piton {

// What a collective waits for: all work now on `stream`, and `events`, usually collectives of other
// groups that produce its input. Dependent collectives can so be enqueued at once, in program
// order. That order is the same on every rank, because it does not depend on what has completed.
struct After {
  // Implicit, because most callers pass only a stream.
  After(Stream& after, std::vector<Event> also = {}) : stream(after), events(std::move(also)) {}
  Stream& stream;
  std::vector<Event> events;
};

enum class Reduction : std::uint8_t { kSum, kMax };

// Bytes that this rank has sent since the start, by kind of collective. Tests compare them with the
// formulas: an all-reduce of B bytes over n ranks sends 2 B (n - 1) / n.
struct TrafficCounts {
  std::int64_t all_reduce_bytes = 0;
  std::int64_t all_gather_bytes = 0;
  std::int64_t reduce_scatter_bytes = 0;
  std::int64_t broadcast_bytes = 0;
  std::int64_t all_to_all_bytes = 0;
  std::int64_t point_to_point_bytes = 0;
  std::int64_t received_bytes = 0;  // of all kinds together
  std::int64_t collectives = 0;

  TrafficCounts& operator+=(const TrafficCounts& other) {
    all_reduce_bytes += other.all_reduce_bytes;
    all_gather_bytes += other.all_gather_bytes;
    reduce_scatter_bytes += other.reduce_scatter_bytes;
    broadcast_bytes += other.broadcast_bytes;
    all_to_all_bytes += other.all_to_all_bytes;
    point_to_point_bytes += other.point_to_point_bytes;
    received_bytes += other.received_bytes;
    collectives += other.collectives;
    return *this;
  }
};

// One buffer for each member of a group, which the members on the same host can address directly.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  virtual Tensor mine() const = 0;            // u8 [bytes]
  virtual Tensor peer(int member) const = 0;  // u8 [bytes]; empty if it is on another host
  // Counters for flow control between members. signal(m, slot) adds 1 to counter `slot` of member
  // m; `bytes`: what it was given since the last one, for worlds that compute times. wait(slot,
  // value) blocks until this member's counter `slot` is at least `value`; what the other member
  // wrote before its signal() is then visible.
  virtual void signal(int member, int slot, std::int64_t bytes = 0) = 0;
  virtual void wait(int slot, std::uint64_t value) = 0;
  // out[i] = the sum over members of what their buffers hold from byte `begin` on, with the bits of
  // a reduce-scatter. `out`: contiguous, of a dtype of sums, here or in this member's buffer; all
  // members on this host. Runs on this thread; the writes of others are to be waited for before.
  virtual void sum(const Tensor& out, std::int64_t begin) = 0;
};

// A tensor that goes to, or comes from, another member.
struct PeerMessage {
  Tensor data;
  int member = 0;
  int tag = 0;
};

// The events of an exchange, in the order of its lists.
struct Exchanged {
  std::vector<Event> sent;
  std::vector<Event> received;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // "tensor", "data", ...
  // False if the other members do not exist (comm/virtual): results are placeholders.
  virtual bool real() const { return true; }

  // In place: data[i] = the sum or maximum of the members' data[i]. `data`: the same shape on every
  // member, contiguous; fp64, fp32, bf16, fp16 or int64.
  virtual Event all_reduce(const Tensor& data, Reduction reduction, const After& after) = 0;
  // out [n * rows, ...] = the members' `mine` [rows, ...] in order of rank, for n members. `mine`
  // must not overlap `out`, unless it is this member's slice of it.
  virtual Event all_gather(const Tensor& out, const Tensor& mine, const After& after) = 0;
  // mine [rows, ...] = the sum over members of slice number rank() of `all` [n * rows, ...]. `mine`
  // must not overlap `all`, unless it is this member's slice of it. The rest of `all` may be
  // overwritten.
  virtual Event reduce_scatter(const Tensor& mine, const Tensor& all, const After& after) = 0;
  // Slice m of `out` = slice rank() of member m's `mine`. Both [n * rows, ...] for n members, of
  // the same shape on every member; they must not overlap.
  virtual Event all_to_all(const Tensor& out, const Tensor& mine, const After& after) = 0;
  // An all-to-all of slices of different sizes. `counts` are the same on every member. The first
  // counts.sent(rank()) rows of mine [.., width] go to the members in order; the first
  // counts.received(rank()) rows of out [.., width] come from the members in order. All other rows
  // are room that is neither read nor written. `mine` and `out` must not overlap.
  virtual Event all_to_all_rows(const Tensor& out, const Tensor& mine, const RowCounts& counts,
                                const After& after) = 0;
  // Copies the data of member `root` to all members. The same shape everywhere, contiguous.
  virtual Event broadcast(const Tensor& data, int root, const After& after) = 0;
  // Point-to-point messages, after all work on stream `after`. A receive matches the send with the
  // same pair of members and the same tag; messages with one tag arrive in the order of sending. A
  // send is complete when `data` may be reused. Tags are 0 .. largest_tag().
  virtual Event send(const Tensor& data, int member, int tag, Stream& after) = 0;
  virtual Event receive(const Tensor& data, int member, int tag, Stream& after) = 0;
  virtual int largest_tag() const { return std::numeric_limits<int>::max(); }
  // receive() of all `receives` and send() of all `sends`, as one operation: of two members, either
  // both or none exchange something, and they do so in the same order, as if it were a collective.
  // So no lanes are needed (comm/message_lanes.h), and on GPUs no receive is under way while its
  // sender still has work to do.
  virtual Exchanged exchange(const std::vector<PeerMessage>& sends,
                             const std::vector<PeerMessage>& receives, Stream& after);

  // Every member's `mine` (host bytes, any length), in order of rank. Blocks. For setup, checks and
  // small results.
  virtual std::vector<std::string> gather_bytes(const std::string& mine) = 0;
  virtual void barrier() = 0;  // blocks this host thread until every member has called it

  // Collective: all members call it with the same `bytes`.
  virtual std::unique_ptr<SymmetricMemory> allocate_symmetric(std::int64_t bytes) = 0;
  // Adds to traffic() what symmetric memory of this group has carried in place of collectives.
  virtual void count(const TrafficCounts& carried) = 0;

  virtual TrafficCounts traffic() const = 0;
};

// All ranks of a run. Makes the groups.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_rank() const = 0;  // among the ranks of this host
  virtual int host_size() const = 0;

  // Collective over `ranks`: world ranks in ascending order, this rank among them. All ranks make
  // the groups that they share in the same order.
  virtual std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                                   const std::string& name) = 0;

  // Reports that this rank has failed. Its pending waits, and those of the other ranks of this
  // host, throw Error(kPeer) at once. The other ranks' message contains `code`, the exit code of
  // this rank, and `why`. After an exception, call it before the resources of the run are released.
  // Afterwards only abort() may be called.
  virtual void fail(int /*code*/, const std::string& /*why*/) {}

  // Ends every rank of the run within seconds, with exit code `code` where the launcher allows it.
  // Does not return.
  [[noreturn]] virtual void abort(int code) = 0;
  virtual TrafficCounts traffic() const = 0;  // of all groups
};

// For implementations of Communicator::all_to_all_rows: asserts that the tensors have room for the
// rows of `counts`.
void check_rows(const Communicator& group, const Tensor& out, const Tensor& mine,
                const RowCounts& counts);

// What this rank sends to others and gets from others in an all_to_all_rows of rows of `row_bytes`.
TrafficCounts traffic_of_rows(const Communicator& group, const RowCounts& counts,
                              std::int64_t row_bytes);

// Collective over all ranks.
std::unique_ptr<Communicator> make_group_of_all(World& world, const std::string& name);

// One process: every group has one member.
std::unique_ptr<World> make_single_world(Device& device);

// A group of one member: its collectives copy or do nothing.
std::unique_ptr<Communicator> make_single_communicator(Device& device, std::string name);

}  // namespace piton
