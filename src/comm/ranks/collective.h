// The description of a collective, and the interface that executes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/ranks/job.h"

namespace piton {

enum class CollectiveKind : std::uint8_t {
  kAllReduce,
  kGather,
  kScatter,
  kExchange,  // all-to-all
  kBroadcast,
  kBarrier
};
std::string_view name(CollectiveKind kind);

struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  DType dtype = DType::kU8;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::int64_t elements = 0;  // of the whole tensor
  // Gather, scatter, exchange: part m is [begins[m], begins[m + 1]).
  std::vector<std::int64_t> begins;
  // Exchange of parts of different sizes: number i n + j of n * n has the elements from member i to
  // member j, the same on every member; `begins` are of the target then, and these of the source.
  std::vector<std::int64_t> pairs;
  std::vector<std::int64_t> source_begins;
  //            source             target
  // all-reduce the whole          the same
  // gather     the own part       the whole
  // scatter    the whole          the own part
  // exchange   for each member    of each member
  // broadcast  the whole          the same
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  // Kept until the collective has ended, even if the caller destroys its tensors during an
  // exception. Empty for memory of an arena, which is kept by Arena::hold().
  std::vector<std::shared_ptr<Storage>> memory;

  std::int64_t number = 0;  // counts the collectives of its group, from 0
  std::shared_ptr<Job> job;

  std::int64_t part_elements(int member) const { return begins[member + 1] - begins[member]; }
  // Of the source of an exchange.
  std::int64_t source_begin(int member) const {
    return (pairs.empty() ? begins : source_begins)[member];
  }
  std::int64_t source_elements(int member) const {
    return source_begin(member + 1) - source_begin(member);
  }
  // Of a part of any member. With `pairs` parts of members to themselves do not count.
  std::int64_t longest_part() const;
  std::int64_t element_bytes() const { return size_bytes(dtype); }
  std::string text() const;  // "all-reduce number 12 of fp32 [1000]"
};

// Executes collectives one after the other for one member of a group.
class CollectiveRunner {
 public:
  virtual ~CollectiveRunner() = default;
  virtual void start(const Collective& collective) = 0;  // only after the previous one has finished
  virtual bool step() = 0;                               // true if it made progress; never blocks
  virtual bool finished() const = 0;
  virtual bool polls() const = 0;
  // Members that the running collective waits for.
  virtual std::vector<Wait::Missing> missing() const = 0;
};

// The first element of the slice of `member` if `elements` are cut into one slice per member.
// Slices begin at multiples of 16 elements, so that no two members write the same cache line.
std::int64_t slice_begin(std::int64_t elements, int members, int member);

}  // namespace piton
