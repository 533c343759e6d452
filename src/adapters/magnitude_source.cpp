#include "adapters/magnitude_source.h"

#include <algorithm>
#include <cmath>

#include "adapters/merged_source.h"
#include "base/error.h"
#include "checkpoint/values.h"

namespace piton {
namespace {

constexpr std::int64_t kBlockElements = 1 << 20;  // of a weight that are read at once

}  // namespace

MagnitudeSource::MagnitudeSource(TensorSource& model, const Adapters& adapters) : model_(model) {
  std::map<std::string, CanonicalTensor> all;
  for (const CanonicalTensor& one : model.tensors(TensorKind::kWeight)) all[one.name] = one;
  for (const auto& [linear, shape] : adapters.shapes) {
    if (!shape.magnitude) continue;
    for (const std::string& matrix : matrices_of(linear)) {
      const auto found = all.find(matrix + ".weight");
      if (found == all.end()) {
        throw Error(Fault::kUsage, "adapter: {} has no {}; is the adapter for another model?",
                    model.where(), matrix);
      }
      weights_[matrix + std::string(kAdapterMagnitude)] = found->second;
    }
  }
}

std::vector<CanonicalTensor> MagnitudeSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> list;
  if (kind != TensorKind::kWeight) return list;
  for (const auto& [name, weight] : weights_)
    list.push_back({.name = name, .dtype = DType::kF64, .shape = {weight.shape[0]}});
  return list;
}

void MagnitudeSource::read(const std::string& name, const TensorRun& run, DType dtype,
                           std::byte* dst) {
  const CanonicalTensor& weight = weights_.at(name);
  const std::int64_t columns = weight.shape[1];
  const std::int64_t most = std::max<std::int64_t>(1, kBlockElements / columns);
  std::vector<double> lengths;
  std::vector<double> rows;
  for (std::int64_t begin = run.begin; begin < run.end; begin += most) {
    const std::int64_t count = std::min(most, run.end - begin);
    rows.resize(static_cast<std::size_t>(count * columns));
    model_.read(weight.name, {{run.start[0] + begin, 0}, {count, columns}, 0, count * columns},
                DType::kF64, reinterpret_cast<std::byte*>(rows.data()));
    for (std::int64_t row = 0; row < count; ++row) {
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        const double value = rows[static_cast<std::size_t>(row * columns + i)];
        sum += value * value;
      }
      lengths.push_back(std::sqrt(sum));
    }
  }
  convert_values(reinterpret_cast<const std::byte*>(lengths.data()), DType::kF64, dst, dtype,
                 run.size());
}

}  // namespace piton
