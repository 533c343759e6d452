// The vectors of Megatron's DistributedOptimizer, which name nothing.
//
// For each kind of state ("param", "exp_avg", "exp_avg_sq") there is a vector of all parameters of
// a chunk, in the reverse of the model's order, or one for each bucket of them. Parameters begin at
// multiples of 64 elements of their bucket, or one right behind another (older versions); in a
// vector of several buckets a bucket begins right behind another. Which bucket ends where is not
// said: parameters are recognized by their copies in "param".
//
// Source: megatron/core/distributed/param_and_grad_buffer.py and
// megatron/core/optimizer/distrib_optimizer.py of Megatron-core 0.16.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/format/flat_boxes.h"
#include "megatron/format/optimizer_groups.h"

namespace piton {

class OptimizerBuffer {
 public:
  // `copies`: the vectors of "param". `weights`: about in the model's order. Finds no places where
  // the copies are not of these weights.
  OptimizerBuffer(std::vector<FlatVector> copies, OrderedWeights weights);

  bool found() const { return !places_.empty(); }
  // The weights' elements in vectors of another kind. Empty where these are not as long as the
  // copies. Asserts found().
  BoxedTensors tensors(const std::vector<FlatVector>& vectors) const;
  BoxedTensors copies() const { return tensors(copies_); }

 private:
  struct Place {
    std::size_t weight = 0;
    std::size_t vector = 0;
    std::int64_t at = 0;
    std::int64_t bucket = 0;  // where its bucket begins
  };
  void find_places();
  // Candidates for the next place, the likeliest last.
  std::vector<Place> candidates(const std::vector<bool>& taken) const;

  std::vector<FlatVector> copies_;
  OrderedWeights weights_;
  std::vector<Place> places_;
};

}  // namespace piton
