// How bench measures: samples of several things taken in turns, so that a machine that others slow
// down for seconds at a time slows all of them, and the best of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "train/machine.h"

namespace piton {

// Times of one piece of work, a round each.
struct Samples {
  std::vector<double> seconds;

  double best() const;    // asserts that there is one
  double spread() const;  // (slowest - best) / best
};

double seconds_of(const std::function<void()>& work);
// Runs `work` once, or three times where once takes below 5 ms, and keeps the best.
void sample(Samples& samples, const std::function<void()>& work);

// The best of the machine's peaks for `dtype`, one measured a round; 0 where it cannot be measured.
// `machine` must outlive it.
class PeakSamples {
 public:
  PeakSamples(const Machine& machine, DType dtype) : machine_(machine), dtype_(dtype) {}
  void sample();
  double flops_per_second() const { return best_; }
  double loading_flops_per_second() const { return best_loading_; }  // 0: no limit of its own

 private:
  const Machine& machine_;
  DType dtype_;
  double best_ = 0;
  double best_loading_ = 0;
};

// One kernel call measured against the peak.
struct CallFigure {
  std::string what;
  std::int64_t calls = 1;  // of this kind, in the work that it represents
  double flops = 0;        // of one call
  Samples samples;
};

// On the machine's device: pseudo-random contents in (-1, 1), the same in every run; zeros.
Tensor random_tensor(const Machine& machine, DType dtype, const Shape& shape);
Tensor zero_tensor(const Machine& machine, DType dtype, const Shape& shape);

// Returns when the call is done.
void run_alone(const Machine& machine, const KernelCall& call);

// Largest resident size of this process so far, as the system counts it (VmHWM); 0 where it does
// not.
std::int64_t peak_resident_bytes();

}  // namespace piton
