// A tensor that an op can compute again from others that are kept, in place of being kept itself.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ops/kept.h"

namespace piton {

// `compute` enqueues the op and returns its result, with the bits that it had in forward. Runs when
// backward first asks for the tensor.
template <typename Compute>
class ComputedAgain final : public KeptTensor {
 public:
  explicit ComputedAgain(Compute compute) { compute_.emplace(std::move(compute)); }
  Tensor get() override {
    if (compute_) {
      tensor_ = (*compute_)();
      compute_.reset();  // frees what it was computed from
    }
    return tensor_;
  }

 private:
  std::optional<Compute> compute_;
  Tensor tensor_;
};

// For Tape::provide().
template <typename Compute>
std::shared_ptr<KeptTensor> computed_again(Compute compute) {
  return std::make_shared<ComputedAgain<Compute>>(std::move(compute));
}

}  // namespace piton
