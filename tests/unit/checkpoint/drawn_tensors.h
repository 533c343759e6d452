// Weights for tests of loading, without a file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random/philox.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/values.h"
#include "model/canonical_tensors.h"

namespace piton::test {

// The canonical tensors of a model, drawn by name and place: a source that every layout loads
// alike.
class DrawnTensors final : public piton::TensorSource {
 public:
  // Matrices are uniform within `bound`, vectors within 0.1 of 1.
  explicit DrawnTensors(const ModelConfig& model, double bound = 0.2) {
    std::uint32_t number = 0;
    for (const CanonicalShape& one : canonical_tensors(model)) {
      const Tensor tensor = host_tensor(DType::kF32, one.shape);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const PhiloxBlock block = philox({7, number}, {static_cast<std::uint32_t>(i), 0, 0, 0});
        const double unit = static_cast<double>(block[0]) / 2147483648.0 - 1;  // -1 .. 1
        tensor.data<float>()[i] =
            static_cast<float>(one.shape.ndim() > 1 ? bound * unit : 1 + 0.1 * unit);
      }
      ++number;
      tensors_[one.name] = tensor;
    }
  }

  std::string where() const override { return "drawn tensors"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> list;
    if (kind != TensorKind::kWeight) return list;
    for (const auto& [name, tensor] : tensors_)
      list.push_back({name, tensor.dtype(), tensor.shape()});
    return list;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const Tensor& tensor = tensors_.at(name);
    for_each_stretch(tensor.shape(), run,
                     [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                       convert_values(tensor.raw() + from * 4, DType::kF32,
                                      dst + (to - run.begin) * size_bytes(dtype), dtype, count);
                     });
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace piton::test
