// Samples of each update: a constant batch, or one that grows at the start of a run.
//
// --rampup-batch-size S I R, with the whole batch B and n = (B - S) / I increments, as
// Megatron-core has it (num_microbatches_calculator.py, 0.16.1): the update after c consumed
// samples takes
//
//   S + floor(c / (R / n)) I  samples     c <= R
//   B                                     c >  R
//
// A pure function of c: nothing of it is stored, and a resumed run continues in mid-ramp.
#pragma once

#include <cstdint>
#include <vector>

namespace piton {

class BatchSizes {
 public:
  BatchSizes() = default;
  // A constant batch.
  explicit BatchSizes(std::int64_t whole) : whole_(whole) {}
  // `ramp`: {S, I, R}. `share`: samples of one micro-batch on all data-parallel ranks, which every
  // batch is a multiple of. Throws Error(kUsage) naming the flag.
  BatchSizes(std::int64_t whole, const std::vector<std::int64_t>& ramp, std::int64_t share);

  // Samples of the update that follows `consumed` ones.
  std::int64_t at(std::int64_t consumed) const;
  // Updates of a run of `samples`. The last one is whole: what is left of `samples` is not taken.
  std::int64_t updates(std::int64_t samples) const;

  // Every size that an update may have, in ascending order.
  std::vector<std::int64_t> all() const;
  std::int64_t whole() const { return whole_; }
  bool grows() const { return ramp_samples_ > 0; }

 private:
  std::int64_t whole_ = 1;
  std::int64_t start_ = 0;
  std::int64_t increment_ = 0;
  std::int64_t ramp_samples_ = 0;  // 0: a constant batch
  double increment_samples_ = 0;   // R / n
};

}  // namespace piton
