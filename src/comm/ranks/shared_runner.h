// Collectives between ranks of one host, through shared memory.
//
// Every member owns two slots of kSlotBytes in the group's window. A collective goes through them
// in rounds; round k uses slot k mod 2, so that one round is filled while the other is summed:
//
//   fill    copy the own bytes of this round into the own slot     once all took round k - 2
//   sum     all-reduce: own slice over all slots, into own slot    once all filled round k
//   take    copy the result out (scatter: sum it out)              once all filled (summed) round k
//
// An all-to-all fills as a scatter does, and takes its part of each slot; its part of its own
// memory it copies at once.
//
// Each member counts its rounds in a line that only it writes. The member that completes a
// condition rings the others' doorbells. Small all-reduces, and those between two members, skip the
// sum step: every member sums everything while it takes.
//
// Memory of the group's SymmetricMemory needs no slots: members read (and all-reduce writes) each
// other's memory in place, if the collective's source is symmetric on every member.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "comm/ranks/collective.h"
#include "comm/ranks/host_board.h"
#include "comm/ranks/transport.h"

namespace piton {

class SharedRunner final : public CollectiveRunner {
 public:
  // Collective over `group`, all of whose ranks are on `board`; `members` are their host ranks.
  SharedRunner(RankChannel& group, HostBoard& board, std::vector<int> members);

  // Memory of this group that collectives may use in place; same order on every member.
  void add_symmetric(std::shared_ptr<SharedWindow> window);
  void remove_symmetric(const SharedWindow* window);

  void start(const Collective& collective) override;
  bool step() override;
  bool finished() const override { return phase_ == Phase::kFinished; }
  bool polls() const override { return false; }
  std::vector<Wait::Missing> missing() const override;

  void free() { window_->free(); }

 private:
  // Parameters that must be equal on all members.
  struct Asked {
    CollectiveKind kind;
    DType dtype;
    Reduction reduction;
    std::int32_t root;
    std::int64_t elements;
    std::uint64_t parts;  // hash of begins, or of pairs
    bool operator==(const Asked&) const = default;
  };
  // Each line has two headers: collective n is in header n mod 2 until n + 2 starts.
  struct Header {
    Asked asked;
    std::int64_t symmetric;         // number of the symmetric memory that holds the source; 0: none
    std::int64_t symmetric_offset;  // in bytes
  };
  struct Line {
    alignas(64) std::atomic<std::uint64_t> posted;  // collectives whose header is written
    std::atomic<std::uint64_t> filled;              // rounds
    std::atomic<std::uint64_t> summed;
    std::atomic<std::uint64_t> taken;
    alignas(64) Header headers[2];
  };
  using Counter = std::atomic<std::uint64_t> Line::*;
  enum class Phase { kUndecided, kSlots, kInPlace, kFinished };

  Line& line(int member) const { return *reinterpret_cast<Line*>(window_->segment(member)); }
  std::byte* slot(int member, std::int64_t round) const;
  std::uint64_t least(Counter counter) const;
  void publish(Counter counter, std::uint64_t value);
  void ring_others();

  void check_headers();
  bool step_slots();
  bool step_in_place();
  void fill(std::int64_t round);
  void sum(std::int64_t round);
  void take(std::int64_t round);
  std::byte* in_place(int member) const;

  int size() const { return static_cast<int>(members_.size()); }

  HostBoard* board_;
  std::vector<int> members_;
  int rank_ = 0;
  std::unique_ptr<SharedWindow> window_;
  struct Symmetric {
    std::int64_t number;
    std::shared_ptr<SharedWindow> window;
  };
  std::vector<Symmetric> symmetric_;
  std::int64_t symmetric_made_ = 0;

  Collective now_;
  Phase phase_ = Phase::kFinished;
  std::uint64_t base_ = 0;   // rounds before this collective
  std::int64_t rounds_ = 0;  // of this collective
  std::int64_t per_round_ =
      0;                    // elements of a round: of the whole, or of each part (gather, scatter)
  bool two_steps_ = false;  // all-reduce with a sum step
  bool checked_ = false;
  std::int64_t filled_ = 0;
  std::int64_t summed_ = 0;
  std::int64_t taken_ = 0;
  std::int64_t done_elements_ = 0;  // in place
};

}  // namespace piton
