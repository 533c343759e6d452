// Collectives between ranks of several hosts, by messages. The sums are bit-identical to those in
// shared memory.
//
//   all-reduce   in chunks: every member collects its slice of the chunk from all members, sums
//                it, and sends the sum to all
//   scatter      in chunks: every member collects its part from all members and sums it
//   gather       every member sends its part to all
//   all-to-all   every member sends each other one its part
//   broadcast    the root sends to all
//
// A rank sends as many bytes as in a ring algorithm.
#pragma once

#include <vector>

#include "comm/ranks/collective.h"
#include "comm/ranks/host_map.h"
#include "comm/ranks/transport.h"

namespace piton {

class MessageRunner final : public CollectiveRunner {
 public:
  // `world_ranks`: the members of `channel`, for texts.
  MessageRunner(std::shared_ptr<RankChannel> channel, std::vector<int> world_ranks,
                HostTraffic traffic);

  void start(const Collective& collective) override;
  bool step() override;
  bool finished() const override { return finished_; }
  bool polls() const override { return !finished_; }
  std::vector<Wait::Missing> missing() const override;

 private:
  void next_phase();
  void exchange_pieces(std::int64_t round);
  void sum_pieces(std::int64_t round);
  void share_sums(std::int64_t round);
  void move_parts();
  void broadcast();
  void send(const std::byte* data, std::int64_t elements, int member);
  void receive(std::byte* data, std::int64_t elements, int member);
  // The elements [begin, end) of the whole tensor that are `owner`'s piece of `round`.
  struct Piece {
    std::int64_t begin;
    std::int64_t end;
  };
  Piece piece(std::int64_t round, int owner) const;
  int size() const { return static_cast<int>(world_ranks_.size()); }

  std::shared_ptr<RankChannel> channel_;
  std::vector<int> world_ranks_;
  HostTraffic traffic_;
  int rank_ = 0;

  Collective now_;
  bool finished_ = true;
  std::int64_t rounds_ = 0;
  std::int64_t per_round_ = 0;  // elements of the whole (all-reduce) or of each part (scatter)
  std::int64_t round_ = 0;
  enum class Phase { kStart, kPieces, kSums, kLast } phase_ = Phase::kStart;
  Transfers transfers_;
  std::vector<std::byte> staging_;   // the other members' pieces
  std::int64_t staging_stride_ = 0;  // bytes of one member's piece
};

}  // namespace piton
