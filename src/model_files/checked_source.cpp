#include "model_files/checked_source.h"

#include <algorithm>
#include <utility>

#include "optim/optimizer.h"

namespace piton {
namespace {

const std::string kAveragePrefix = std::string(kAverageMoment) + ".";

}  // namespace

CheckedSource::CheckedSource(const std::filesystem::path& folder, const Manifest& manifest,
                             WeightsKind kind)
    : source_(folder, manifest, /*optimizer=*/kind == WeightsKind::kAverage),
      average_(kind == WeightsKind::kAverage) {
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i)
    unchecked_[manifest.tensors[i].tensor.name] = i;
  source_.check_headers();
}

bool CheckedSource::has_average(const Manifest& manifest) {
  return std::ranges::any_of(manifest.tensors, [](const StoredTensor& one) {
    return one.tensor.kind == TensorKind::kOptimizer && one.tensor.name.starts_with(kAveragePrefix);
  });
}

std::vector<CanonicalTensor> CheckedSource::tensors(TensorKind kind) const {
  if (!average_ || kind != TensorKind::kWeight) return source_.tensors(kind);
  std::vector<CanonicalTensor> averages;
  for (CanonicalTensor one : source_.tensors(TensorKind::kOptimizer)) {
    if (!one.name.starts_with(kAveragePrefix)) continue;
    one.name.erase(0, kAveragePrefix.size());
    one.kind = TensorKind::kWeight;
    averages.push_back(std::move(one));
  }
  return averages;
}

void CheckedSource::read(const std::string& weight, const TensorRun& run, DType dtype,
                         std::byte* dst) {
  const std::string name = average_ ? kAveragePrefix + weight : weight;
  const auto found = unchecked_.find(name);
  if (found != unchecked_.end()) {
    source_.check_hash(found->second);
    unchecked_.erase(found);
  }
  source_.read(name, run, dtype, dst);
}

}  // namespace piton
