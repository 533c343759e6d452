// Measures the peak FLOP/s of this rank's threads.
#pragma once

#include "tensor/dtype.h"

namespace piton {

class PeakMeter {
 public:
  virtual ~PeakMeter() = default;

  // By a loop of the widest multiply-add instruction of the dtype. 0: cannot be measured.
  virtual double flops(DType dtype) = 0;
  // The same with operands loaded from cache; 0 if loads are not a separate limit.
  virtual double loading_flops(DType dtype) = 0;
};

}  // namespace piton
