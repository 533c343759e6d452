// The values that the matrices of a model have once they are quantized (codes/code_format.h): what
// kernels expand from the codes that load_codes() makes of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "kernels/compute_context.h"

namespace piton {

class QuantizedSource final : public TensorSource {
 public:
  // `model` must outlive it.
  QuantizedSource(TensorSource& model, const CodeFormat& format, const ComputeContext& compute);

  std::string where() const override { return model_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    return model_.tensors(kind);
  }
  // Every matrix is quantized, also a table; vectors are as they are stored. One whole matrix is in
  // memory, in fp32: that of the last read. Throws Error(kData) for values that cannot be
  // quantized.
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  const Tensor& rows_of(const std::string& name, const Shape& shape);

  TensorSource& model_;
  CodeFormat format_;
  ComputeContext compute_;
  std::map<std::string, Shape> shapes_;
  std::string last_;  // the matrix that rows_ is of
  Tensor rows_;       // [out, in] in host memory, fp32
};

}  // namespace piton
