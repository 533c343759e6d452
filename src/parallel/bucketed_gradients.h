// Gradients of stages 0 and 1: one flat buffer that collects a step's contributions, reduced in
// buckets while backward goes on.
//
// Buckets are runs of whole parameters, fixed by the layout and at least kBucketBytes large; a tied
// parameter has one of its own. They start from the end of the layout, where backward begins, and
// always in that order, whatever the order in which they are completed: every rank of a group must
// start the same reductions in the same order. Sums over tensor start in program order, the moment
// their bucket's turn has come (the layers' own collectives share that group); the bucket itself
// follows when they are done, and never makes compute wait before finish().
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "parallel/flat_layout.h"
#include "parallel/reduction_groups.h"

namespace piton {

inline constexpr std::int64_t kBucketBytes = std::int64_t{32} << 20;

class BucketedGradients {
 public:
  // `scatter`: after finish() each rank's shard is valid (stage 1), else all (stage 0). Sets
  // Parameter::gradient of every entry. `layout` and `groups` outlive it.
  BucketedGradients(const FlatLayout& layout, const ReductionGroups& groups, bool scatter,
                    Device& device, Arena& arena, Stream& stream,
                    std::int64_t bucket_bytes = kBucketBytes);

  void begin_step(int micro_batches, Stream& stream);
  // Asserts that no more come than begin_step() was told.
  void contribute(Parameter& parameter, Stream& stream);
  // Starts what has not, sums tied parameters, and makes `stream` wait for all.
  void finish(Stream& stream);

  Tensor part(const FlatSpan& span) const { return flat_.slice(0, span.flat_begin, span.size); }
  std::size_t num_buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    std::int64_t begin = 0;
    std::int64_t size = 0;
    std::vector<std::size_t> entries;
    bool tied = false;
    int incomplete = 0;  // entries that still expect contributions
    std::vector<Event> tensor_sums;
    Event reduced;
  };
  void make_buckets(std::int64_t bucket_bytes);
  // Starts what may start now; with `finishing`, everything, waiting where one sum needs another.
  void advance(bool finishing, Stream& stream);
  Tensor gradient_of(std::size_t entry) const;

  const FlatLayout& layout_;
  const ReductionGroups& groups_;
  bool scatter_;
  Device* device_;
  Arena* arena_;
  Tensor flat_;
  std::vector<Bucket> buckets_;  // in the order they start
  std::map<const Parameter*, std::size_t> entry_of_;
  std::vector<std::size_t> bucket_of_;  // by entry
  std::vector<std::int64_t> missing_;   // contributions, by entry
  std::size_t next_tensor_ = 0;         // first bucket whose sums over tensor have not started
  std::size_t next_data_ = 0;           // first bucket that is not being reduced
};

// fp64 if the parameters are fp64, else fp32. Asserts that fp64 is not mixed with others.
DType gradient_dtype(const FlatLayout& layout);

}  // namespace piton
