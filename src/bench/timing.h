// Timing for bench. Several things are sampled in turn, so that a slowdown of seconds by other jobs
// affects all of them. The best sample of each counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "session/machine.h"
#include "tensor/tensor.h"

namespace piton {

// Times of one piece of work, one per round.
struct Samples {
  std::vector<double> seconds;

  double best() const;    // asserts that there is one
  double spread() const;  // (slowest - best) / best
};

double seconds_of(const std::function<void()>& work);
// Adds one sample: runs `work` once, or three times if one run takes less than 5 ms, and keeps the
// best.
void sample(Samples& samples, const std::function<void()>& work);

// The best peak of the machine for `dtype`, measured once per round; 0 if it cannot be measured.
// `machine` must outlive it.
class PeakSamples {
 public:
  PeakSamples(const Machine& machine, DType dtype) : machine_(machine), dtype_(dtype) {}
  void sample();
  double flops_per_second() const { return best_; }
  double loading_flops_per_second() const { return best_loading_; }  // 0: no separate limit

 private:
  const Machine& machine_;
  DType dtype_;
  double best_ = 0;
  double best_loading_ = 0;
};

// One kernel call measured against the peak.
struct CallFigure {
  std::string what;
  std::int64_t calls = 1;  // number of calls of this kind in the measured work
  double flops = 0;        // of one call
  Samples samples;
};

// Tensors on the machine's device: pseudo-random values in (-1, 1), the same in every run; or
// zeros.
Tensor random_tensor(const Machine& machine, DType dtype, const Shape& shape);
Tensor zero_tensor(const Machine& machine, DType dtype, const Shape& shape);

// Runs the call and waits for it.
void run_alone(const Machine& machine, const KernelCall& call);

// Peak resident memory of this process (VmHWM); 0 if the system does not report it.
std::int64_t peak_resident_bytes();

}  // namespace piton
