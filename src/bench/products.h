// Records the products of a step (linear maps and attention) while it runs, to time each of them
// alone. The sum of these times is a lower bound of the step time with these kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton {

// A back end that forwards every call and keeps one call of each kind of product, with copies of
// its tensors. Calls with tensors that are not on the host are forwarded but not kept.
class RecordedProducts final : public ForwardingKernels {
 public:
  // `inner` must outlive it.
  explicit RecordedProducts(Kernels& inner) : ForwardingKernels(inner) {}

  // Runs each kept call alone, and adds a sample to its figure.
  void sample(const Machine& machine);
  // In the order of their descriptions.
  std::vector<CallFigure> figures() const;
  // Sum over kinds of (number of calls x best time); 0 if nothing was kept.
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
