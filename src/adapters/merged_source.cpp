#include "adapters/merged_source.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/listed.h"
#include "checkpoint/values.h"

namespace piton {
namespace {

std::string weight_of(const std::string& matrix) { return matrix + ".weight"; }

// A box of a matrix, row by row.
std::vector<double> read_box(TensorSource& source, const std::string& name, const Shape& start,
                             const Shape& extent) {
  std::vector<double> values(static_cast<std::size_t>(extent.elements()));
  source.read(name, {start, extent, 0, extent.elements()}, DType::kF64,
              reinterpret_cast<std::byte*>(values.data()));
  return values;
}

}  // namespace

std::map<std::string, Shape> adapter_tensors(const Adapters& adapters,
                                             const std::map<std::string, Shape>& model) {
  std::map<std::string, Shape> tensors;
  const auto shape_of = [&](const std::string& name) {
    const auto found = model.find(name);
    if (found == model.end())
      throw Error(Fault::kUsage, "adapter: this model has no {}; is it for another model?", name);
    return found->second;
  };
  for (const auto& [linear, shape] : adapters.shapes) {
    for (const std::string& matrix : matrices_of(linear)) {
      const Shape weight = shape_of(weight_of(matrix));
      tensors[matrix + std::string(kAdapterB)] = {weight[0], shape.rank};
      tensors[linear + std::string(kAdapterA)] = {shape.rank, weight[1]};
      if (shape.magnitude) tensors[matrix + std::string(kAdapterMagnitude)] = {weight[0]};
    }
  }
  for (const std::string& name : adapters.trained) tensors[name] = shape_of(name);
  return tensors;
}

MergedSource::MergedSource(TensorSource& model, TensorSource& adapter, const Adapters& adapters)
    : model_(model),
      adapter_(adapter),
      tensors_(model.tensors(TensorKind::kWeight)),
      replaced_(adapters.trained) {
  std::map<std::string, Shape> shapes;
  for (const CanonicalTensor& one : tensors_) shapes[one.name] = one.shape;
  std::map<std::string, Shape> wanted = adapter_tensors(adapters, shapes);
  std::vector<std::string> unknown;
  for (const CanonicalTensor& one : adapter.tensors(TensorKind::kWeight)) {
    const auto found = wanted.find(one.name);
    if (found == wanted.end()) {
      unknown.push_back(one.name);
      continue;
    }
    if (found->second != one.shape) {
      throw Error(Fault::kData, "{}: {} is {}, the model needs {}; is it for another model?",
                  adapter.where(), one.name, to_string(one.shape), to_string(found->second));
    }
    wanted.erase(found);
  }
  std::vector<std::string> missing;
  for (const auto& [name, shape] : wanted) missing.push_back(name);
  if (!missing.empty() || !unknown.empty()) {
    throw Error(Fault::kData, "{}: {} tensors of the adapter {}: {}; is it for another model?",
                adapter.where(), missing.empty() ? unknown.size() : missing.size(),
                missing.empty() ? "are not of this model" : "are missing",
                listed(missing.empty() ? unknown : missing));
  }
  for (const auto& [linear, shape] : adapters.shapes) {
    for (const std::string& matrix : matrices_of(linear)) {
      const std::string weight = weight_of(matrix);
      products_[weight] = {linear + std::string(kAdapterA), matrix + std::string(kAdapterB),
                           matrix + std::string(kAdapterMagnitude), shape, shapes.at(weight)[1]};
    }
  }
}

std::vector<CanonicalTensor> MergedSource::tensors(TensorKind kind) const {
  return kind == TensorKind::kWeight ? tensors_ : std::vector<CanonicalTensor>();
}

// sums[i] += scale (B A)[element run.begin + i of the region].
void MergedSource::add_product(const Product& product, const TensorRun& run,
                               std::vector<double>& sums) const {
  const std::int64_t columns = run.extent[1];
  const std::int64_t first = run.begin / columns;
  const std::int64_t last = (run.end + columns - 1) / columns;
  const std::int64_t rank = product.shape.rank;
  const std::vector<double> a = read_box(adapter_, product.a, {0, run.start[1]}, {rank, columns});
  const std::vector<double> b =
      read_box(adapter_, product.b, {run.start[0] + first, 0}, {last - first, rank});
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t begin = std::max(run.begin, row * columns);
    const std::int64_t end = std::min(run.end, (row + 1) * columns);
    double* sum = sums.data() + (begin - run.begin);
    for (std::int64_t r = 0; r < rank; ++r) {
      const double factor =
          product.shape.scale * b[static_cast<std::size_t>((row - first) * rank + r)];
      const double* from = a.data() + r * columns + (begin - row * columns);
      for (std::int64_t i = 0; i < end - begin; ++i) sum[i] += factor * from[i];
    }
  }
}

// Elements run.begin .. run.end - 1 of the region. A length is that of a whole row, so whole rows
// are computed.
std::vector<double> MergedSource::rescaled(const std::string& weight, const Product& product,
                                           const TensorRun& run) const {
  const std::int64_t width = run.extent[1];
  const std::int64_t first = run.begin / width;
  const std::int64_t rows = (run.end + width - 1) / width - first;
  const std::int64_t columns = product.columns;
  const Shape start{run.start[0] + first, 0};
  std::vector<double> whole = read_box(model_, weight, start, {rows, columns});
  add_product(product, {start, {rows, columns}, 0, rows * columns}, whole);
  std::vector<double> lengths(static_cast<std::size_t>(rows));
  adapter_.read(product.magnitude, {{start[0]}, {rows}, 0, rows}, DType::kF64,
                reinterpret_cast<std::byte*>(lengths.data()));
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = whole.begin() + row * columns;
    const double squares = std::inner_product(begin, begin + columns, begin, 0.0);
    const double factor =
        squares > 0 ? lengths[static_cast<std::size_t>(row)] / std::sqrt(squares) : 0;
    std::transform(begin, begin + columns, begin, [&](double one) { return factor * one; });
  }
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(run.size()));
  for (std::int64_t i = run.begin; i < run.end; ++i) {
    const std::int64_t at = (i / width - first) * columns + run.start[1] + i % width;
    values.push_back(whole[static_cast<std::size_t>(at)]);
  }
  return values;
}

void MergedSource::read(const std::string& name, const TensorRun& run, DType dtype,
                        std::byte* dst) {
  if (replaced_.contains(name)) return adapter_.read(name, run, dtype, dst);
  const auto product = products_.find(name);
  if (product == products_.end() || run.begin >= run.end) return model_.read(name, run, dtype, dst);
  if (product->second.shape.magnitude) {
    const std::vector<double> values = rescaled(name, product->second, run);
    return convert_values(reinterpret_cast<const std::byte*>(values.data()), DType::kF64, dst,
                          dtype, run.size());
  }
  std::vector<double> sums(static_cast<std::size_t>(run.size()));
  auto* bytes = reinterpret_cast<std::byte*>(sums.data());
  model_.read(name, run, DType::kF64, bytes);
  add_product(product->second, run, sums);
  convert_values(bytes, DType::kF64, dst, dtype, run.size());
}

}  // namespace piton
