// Leaves out one collective of another world, so that tests can show that its absence is noticed
// (--fault). For test builds.
//
// No member of the group takes part, so nothing hangs. What each of them has afterwards:
//
//   all-reduce       its own values
//   all-gather       its own part, and zeros for those of the others
//   reduce-scatter   its own addend
//   all-to-all       the part that it keeps, and zeros for those of the others
//   broadcast        what it had
//   gather-bytes     its own bytes in place of those of every member
//
// Barriers have no result, and a message that is left out is one that never arrives: both are
// passed on. So is what symmetric memory carries in place of collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace piton {

struct CollectiveName {
  std::string group;        // of this name, on whatever ranks
  std::string kind;         // as in the table above
  std::int64_t number = 0;  // counts those of a group and a kind from begin_step() on, from 0

  auto operator<=>(const CollectiveName&) const = default;
};
std::string to_string(const CollectiveName& name);

class FaultyWorld final : public World {
 public:
  // `inner` and `device`, which has the tensors, must outlive it and its groups.
  FaultyWorld(World& inner, Device& device);
  ~FaultyWorld() override;

  // Counts from 0 again. `dropped`: the collectives to leave out until the next call.
  void begin_step(std::vector<CollectiveName> dropped = {});
  // The collectives of this rank since begin_step(), in order, without those of groups of one.
  std::vector<CollectiveName> seen() const;
  // How many were left out since begin_step().
  std::int64_t left_out() const;

  int rank() const override;
  int size() const override;
  int host_rank() const override;
  int host_size() const override;
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override;
  void fail(int code, const std::string& why) override;
  [[noreturn]] void abort(int code) override;
  TrafficCounts traffic() const override;

 private:
  struct Record;
  class Group;
  World& inner_;
  Device& device_;
  std::shared_ptr<Record> record_;
};

}  // namespace piton
