// The optimizer's fp32 copies of weights, in the files of Megatron's optimizers, and the vectors of
// a distributed optimizer.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/megatron_files.h"
#include "megatron/optimizer_groups.h"
#include "pickle/torch_file.h"

namespace piton {

// Float16OptimizerWithFloat16Params: `groups` (fp32_from_fp16_params) is a list of groups of
// parameters (megatron/optimizer_groups.h). Of one chunk of `chunks`. Empty where they are not of
// these weights.
BoxedTensors masters_of_groups(const TorchFile& file, const PickleValue& groups,
                               const std::vector<OrderedWeights>& chunks, std::size_t chunk);

// DistributedOptimizer, whose first data-parallel rank keeps a vector for each kind of state
// ("param", "exp_avg", "exp_avg_sq") of all parameters of a chunk, in the reverse of the model's
// order. They begin at multiples of 64 elements of a bucket, or one right behind another (older
// versions); a bucket begins right behind another, or has a vector of its own (before February
// 2024). No name or size is said: copies are recognized by their elements.
class OptimizerBuffer {
 public:
  // `state`: the dict of vectors. Places of no weights where they are not found.
  OptimizerBuffer(const TorchFile& file, const PickleValue& state, const OrderedWeights& weights);

  bool found() const { return !places_.empty(); }
  // The weights' elements in the vectors of a kind. Empty where these are absent, or not as long as
  // those of "param". Asserts found().
  BoxedTensors tensors(const char* kind) const;

 private:
  struct Place {
    std::size_t vector = 0;
    std::int64_t at = 0;
    std::int64_t bucket = 0;  // where its bucket begins
  };
  std::vector<TorchTensor> vectors(const char* kind) const;
  void find_places();
  std::vector<Place> candidates_behind(const Place& place, std::int64_t elements) const;
  BoxedTensor boxed(const TorchTensor& vector, std::int64_t at, const BoxedTensor& weight) const;

  const TorchFile& file_;
  const PickleValue& state_;
  const OrderedWeights& weights_;
  std::vector<TorchTensor> copies_;  // vectors of "param"
  std::vector<Place> places_;        // of the last weight first
};

// True if each 16-bit weight has a copy, of its shape, whose first elements round to its own. A
// wrong guess of what belongs to what does not pass for a copy.
bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights);

}  // namespace piton
