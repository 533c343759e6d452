// The magnitudes that new adapters start with (DoRA, Liu et al. 2024, arXiv:2402.09353): the
// lengths of the rows of the weights of a model, computed in fp64.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "nn/adapters.h"

namespace piton {

class MagnitudeSource final : public TensorSource {
 public:
  // `model` must outlive it. Throws Error(kUsage) for an adapter of a linear that it does not have.
  MagnitudeSource(TensorSource& model, const Adapters& adapters);

  std::string where() const override { return model_.where(); }
  // "layers.3.attention.query.lora_magnitude" [out] of each matrix; none of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  bool reads_in_parallel() const override { return model_.reads_in_parallel(); }

 private:
  TensorSource& model_;
  std::map<std::string, CanonicalTensor> weights_;  // by the name of the magnitude
};

}  // namespace piton
