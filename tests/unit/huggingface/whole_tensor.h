// All values of a canonical tensor of a folder.
#pragma once

#include <string>
#include <vector>

#include "huggingface/hf_source.h"
#include "support/tensors.h"

namespace piton::test {

inline std::vector<double> whole(HfSource& source, const std::string& name, const Shape& shape) {
  const Tensor tensor = host_tensor(DType::kF64, shape);
  source.read(name, whole_run(shape), DType::kF64, tensor.raw());
  return values(tensor);
}

}  // namespace piton::test
