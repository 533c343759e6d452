// A model with an adapter merged into its weights: W + scale B A, of an adapter with magnitudes
// (DoRA) each row of it at the length of its magnitude; computed in fp64 and rounded once.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "nn/adapters.h"

namespace piton {

class MergedSource final : public TensorSource {
 public:
  // Both sources must outlive it. `adapter` has the tensors of `adapters` and those that they train
  // in full, which replace the model's. Throws Error(kData) if a tensor of the adapter is not of
  // this model, is missing, or has another shape.
  MergedSource(TensorSource& model, TensorSource& adapter, const Adapters& adapters);

  std::string where() const override { return model_.where() + " with " + adapter_.where(); }
  // Those of the model, with their types; none of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  bool reads_in_parallel() const override {
    return model_.reads_in_parallel() && adapter_.reads_in_parallel();
  }

 private:
  struct Product {
    std::string a;
    std::string b;
    std::string magnitude;
    AdapterShape shape;
    std::int64_t columns = 0;  // of the whole weight
  };
  void add_product(const Product& product, const TensorRun& run, std::vector<double>& sums) const;
  std::vector<double> rescaled(const std::string& weight, const Product& product,
                               const TensorRun& run) const;

  TensorSource& model_;
  TensorSource& adapter_;
  std::vector<CanonicalTensor> tensors_;
  std::map<std::string, Product> products_;  // by the name of the weight
  std::set<std::string> replaced_;
};

// The tensors of an adapter for a model with these tensors: from the name to the shape. Throws
// Error(kUsage) for an adapter of a linear that the model does not have.
std::map<std::string, Shape> adapter_tensors(const Adapters& adapters,
                                             const std::map<std::string, Shape>& model);

}  // namespace piton
