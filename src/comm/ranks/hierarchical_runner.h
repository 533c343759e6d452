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
// Sums go in rounds, several of which are under way: while the members of a host exchange and
// add one, the links carry others. A chain of H hosts and back is 2 (H-1) messages long, so with 2
// H rounds no link waits for the end of the chain. The members of a host start its local
// collectives in one order, which depends on the numbers of rounds alone.
//
// All-to-all and barriers go from each rank to each other one (MessageRunner), and so does a
// reduce-scatter of bf16 or fp16 with two members on a host, which sends less so.
#pragma once

#include <memory>
#include <vector>

#include "comm/ranks/collective.h"
#include "comm/ranks/host_map.h"
#include "comm/ranks/message_runner.h"
#include "comm/ranks/shared_runner.h"

namespace piton {

class HierarchicalRunner final : public CollectiveRunner {
 public:
  struct Parts {
    HostBlocks blocks;
    std::unique_ptr<SharedRunner> local;  // of the members on this host
    std::unique_ptr<MessageRunner> flat;  // of all members, over the same channel
  };
  HierarchicalRunner(std::shared_ptr<RankChannel> channel, std::vector<int> world_ranks,
                     Parts parts, HostTraffic traffic);

  void start(const Collective& collective) override;
  bool step() override;
  bool finished() const override { return finished_; }
  bool polls() const override;
  std::vector<Wait::Missing> missing() const override;

 private:
  using Bytes = std::vector<std::byte>;

  // A round of sums: `count` elements of the whole (all-reduce), or of each part (scatter), from
  // `begin` on.
  enum class Stage { kFree, kExchanges, kReceives, kReturns, kGathers, kLeaves };
  struct Round {
    Stage stage = Stage::kFree;
    std::int64_t number = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
    std::int64_t slice = 0;  // elements that each member of a host sums, with padding
    std::int64_t mine = 0;   // elements that this one sums
    Bytes packed;            // [L, slice]: what the members of this host get from this one
    Bytes staged;            // [L, slice]: what this one got
    Bytes running;           // [mine] in the type of running sums
    Bytes sums;              // [slice] in the type of the tensor
    Transfers arrives;       // running sums of the host before
    Transfers returns;       // sums of the host behind, or of the last one
    Transfers leaves;
  };

  void start_sums();
  void start_gather();
  void start_broadcast();

  // The next local collective, if what it needs is there.
  bool start_local();
  bool start_round_local();
  bool start_gather_local();
  bool start_broadcast_local();
  void end_local();
  bool all_done();

  bool advance(Round& round);
  void exchange(Round& round);
  void add_members(Round& round);
  void pass_on(Round& round);
  void give_parts(Round& round);
  void gather_sums(Round& round);
  void take_sums(Round& round);

  void local(Collective collective);
  void send(const std::byte* data, std::int64_t bytes, int member, Transfers& to);
  void receive(std::byte* data, std::int64_t bytes, int member, Transfers& from);
  // Number own_ of host `host`.
  int counterpart(int host) const { return host * blocks_.per_host + own_; }
  bool sums() const { return scatters() || now_.kind == CollectiveKind::kAllReduce; }
  bool scatters() const { return now_.kind == CollectiveKind::kScatter; }
  bool flat_sends_less() const;
  // Whether running sums have another type than the tensor.
  bool widens() const;
  std::int64_t wide_bytes() const { return widens() ? 4 : now_.element_bytes(); }
  Round& slot(std::int64_t round) {
    return slots_[static_cast<std::size_t>(round) % slots_.size()];
  }
  Transfers& part(std::int64_t number) { return parts_[static_cast<std::size_t>(number)]; }
  // Whose parts local gather `gather` takes.
  int host_of(std::int64_t gather) const;
  static std::byte* room(Bytes& buffer, std::int64_t bytes);

  std::shared_ptr<RankChannel> channel_;
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
  bool flat_runs_ = false;
  bool local_runs_ = false;
  std::int64_t locals_ = 0;       // local collectives so far
  Round* local_round_ = nullptr;  // whose local collective runs

  std::vector<Round> slots_;
  std::int64_t rounds_ = 0;     // of this collective; hosts of a gather, 1 of a broadcast
  std::int64_t per_round_ = 0;  // elements
  std::int64_t exchanged_ = 0;  // rounds whose exchange, or only local collective, has started
  std::int64_t gathered_ = 0;   // rounds whose gather has started
  std::int64_t added_ = 0;      // rounds, which send in their order
  std::int64_t returned_ = 0;
  Bytes widened_;                 // [mine] fp32
  std::vector<Transfers> parts_;  // of the hosts of a gather, of a broadcast
  Transfers sent_;                // of a gather or broadcast
};

}  // namespace piton
