// Collectives of a group with several ranks on each of several hosts: what must cross hosts does so
// once for each host, not once for each rank.
//
// Letters: H hosts, L members on each, n = H L; B bytes of the whole tensor; w bytes of an element
// of a running sum over s bytes of an element (2 for bf16 and fp16, whose sums run in fp32, else
// 1). Number j of each host has slice j of what its host sends.
//
//                    steps                                               sent between hosts, by all
//   all-reduce       the members of a host exchange slices; the running  (H-1) B (1 + w)
//                    sums go from the first host to the last, each host
//                    adding its members in order; the sums go back; the
//                    members of each host gather them
//   reduce-scatter   the same for the parts of all members, which go     (H-1) B (w + 1/H)
//                    from the last host to their owners
//   all-gather       a part goes to one member of each other host, and   (H-1) B
//                    the members of a host gather them
//   broadcast        the root sends to one member of each other host     (H-1) B
//
// Messages from each rank to each other one send L times as much in place of a whole tensor:
// 2 (H-1) L B for an all-reduce, (H-1) L B for the others.
//
// Sums are taken over members in order of their ranks and rounded once, as everywhere, so the bits
// are those of any other runner. That is why running sums go along the hosts: partial sums of whole
// hosts, added up, would be rounded otherwise. The price is a chain of H messages.
//
// All-to-all and barriers go from each rank to each other one (MessageRunner), and so does a
// reduce-scatter of bf16 or fp16 with two members on a host, which sends less so.
#pragma once

#include <mpi.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "comm/mpi/collective.h"
#include "comm/mpi/host_map.h"
#include "comm/mpi/message_runner.h"
#include "comm/mpi/shared_runner.h"

namespace piton {

class HierarchicalRunner final : public CollectiveRunner {
 public:
  struct Parts {
    HostBlocks blocks;
    std::unique_ptr<SharedRunner> local;  // of the members on this host
    std::unique_ptr<MessageRunner> flat;  // of all members, over the same `comm`
  };
  HierarchicalRunner(MPI_Comm comm, std::vector<int> world_ranks, Parts parts, HostTraffic traffic);

  void start(const Collective& collective) override;
  bool step() override;
  bool finished() const override { return finished_; }
  bool polls() const override { return !requests_.empty() || (flat_runs_ && flat_->polls()); }
  std::vector<Wait::Missing> missing() const override;

 private:
  using Bytes = std::vector<std::byte>;
  void plan_sums(std::int64_t round);
  void plan_gather();
  void plan_broadcast();

  // Stages of a round of sums. Each starts messages, a local collective, or none.
  void exchange();
  void receive_running_sum();
  void add_members();
  void pass_on();
  void pass_back();
  void give_parts();
  void gather_sums();

  void local(Collective collective);
  void send(const std::byte* data, std::int64_t bytes, int member);
  void receive(std::byte* data, std::int64_t bytes, int member);
  // Number own_ of host `host`.
  int counterpart(int host) const { return host * blocks_.per_host + own_; }
  bool scatters() const { return now_.kind == CollectiveKind::kScatter; }
  bool flat_sends_less() const;
  // Whether running sums have another type than the tensor.
  bool widens() const;
  std::int64_t wide_bytes() const { return widens() ? 4 : now_.element_bytes(); }
  static std::byte* room(Bytes& buffer, std::int64_t bytes);

  MPI_Comm comm_;
  std::vector<int> world_ranks_;
  HostBlocks blocks_;
  std::unique_ptr<SharedRunner> local_;
  std::unique_ptr<MessageRunner> flat_;
  HostTraffic traffic_;
  int rank_ = 0;
  int host_ = 0;  // of this rank, counted in the group
  int own_ = 0;   // number of this rank on its host

  Collective now_;
  bool finished_ = true;
  bool local_runs_ = false;
  bool flat_runs_ = false;
  std::int64_t locals_ = 0;  // local collectives so far
  std::deque<std::function<void()>> stages_;
  std::vector<MPI_Request> requests_;
  std::vector<int> waits_for_;     // the member of each request
  std::vector<MPI_Request> late_;  // are waited for after the last stage
  std::vector<int> late_for_;

  // A round of sums: `count_` elements of the whole (all-reduce), or of each part (scatter), from
  // `begin_` on.
  std::int64_t per_round_ = 0;
  std::int64_t begin_ = 0;
  std::int64_t count_ = 0;
  std::int64_t slice_ = 0;  // elements that each member of a host sums, with padding
  std::int64_t mine_ = 0;   // elements that this one sums
  Bytes packed_;            // [L, slice]: what the members of this host get from this one
  Bytes staged_;            // [L, slice]: what this one got
  Bytes running_;           // [mine] in the type of running sums
  Bytes widened_;           // [mine] fp32
  Bytes sums_;              // [slice] in the type of the tensor
};

}  // namespace piton
