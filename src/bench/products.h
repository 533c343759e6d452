// The products of a step - linear maps and attention - caught while the step runs, to be run again
// alone: their sum is the floor that a step cannot go below with these kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "kernels/forwarding_kernels.h"

namespace piton {

// A back end that passes every call on and keeps one call of each kind of product, with tensors of
// its own that hold what the call's tensors held. Host tensors only: others are passed on unkept.
class RecordedProducts final : public ForwardingKernels {
 public:
  // `inner` must outlive it.
  explicit RecordedProducts(Kernels& inner) : ForwardingKernels(inner) {}

  // Runs one call of each kind alone, and adds a sample to its figure.
  void sample(const Machine& machine);
  // In the order of their descriptions.
  std::vector<CallFigure> figures() const;
  // Sum over kinds of calls x best time; 0 where nothing was kept.
  double seconds() const;

 private:
  struct Kept {
    KernelCall call;
    CallFigure figure;
  };
  void submit(const KernelCall& call, Stream& stream) override;

  std::map<std::string, Kept, std::less<>> kept_;
};

// True for linear maps and attention, forward and backward.
bool is_product(const KernelCall& call);

}  // namespace piton
