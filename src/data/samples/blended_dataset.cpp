#include "data/samples/blended_dataset.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

double numpy_sum(std::span<const double> x) {
  // NumPy's pairwise sum: fewer than 8 in order, up to 128 in eight partial sums, more are halved.
  if (x.size() < 8) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum;
  }
  if (x.size() > 128) {
    std::size_t half = x.size() / 2;
    half -= half % 8;
    return numpy_sum(x.first(half)) + numpy_sum(x.subspan(half));
  }
  double r[8];
  std::copy_n(x.begin(), 8, r);
  std::size_t i = 8;
  for (; i + 8 <= x.size(); i += 8) {
    for (std::size_t j = 0; j < 8; ++j) r[j] += x[i + j];
  }
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < x.size(); ++i) sum += x[i];
  return sum;
}

}  // namespace

std::vector<double> normalized(std::span<const double> weights) {
  const double sum = numpy_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

std::int64_t blend_share(std::int64_t samples, double weight) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(samples) * weight));
}

std::int64_t blend_share_built(std::int64_t samples, double weight) {
  constexpr double kWithSurplus = 1 + 0.005;
  return static_cast<std::int64_t>(
      std::ceil(static_cast<double>(blend_share(samples, weight)) * kWithSurplus));
}

BlendedDataset::BlendedDataset(std::vector<Part> parts, std::int64_t size)
    : parts_(std::move(parts)) {
  PITON_ASSERT(!parts_.empty(), "a blend of nothing");
  if (parts_.size() >= static_cast<std::size_t>(std::numeric_limits<std::int16_t>::max())) {
    throw Error(Fault::kUsage, "blend: {} corpora, at most 32766 can be blended; merge some",
                parts_.size());
  }
  std::vector<double> weights;
  for (const Part& part : parts_) weights.push_back(part.weight);
  weights = normalized(weights);
  std::vector<std::int64_t> taken(parts_.size(), 0);
  part_of_.reserve(static_cast<std::size_t>(size));
  index_in_part_.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const double place = std::max(static_cast<double>(i), 1.0);
    std::size_t best = 0;
    double most = weights[0] * place - static_cast<double>(taken[0]);
    for (std::size_t part = 1; part < weights.size(); ++part) {
      const double behind = weights[part] * place - static_cast<double>(taken[part]);
      if (behind > most) {
        most = behind;
        best = part;
      }
    }
    part_of_.push_back(static_cast<std::int16_t>(best));
    index_in_part_.push_back(taken[best]++);
  }
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const std::int64_t has = parts_[part].source->size();
    if (taken[part] > has) {
      throw Error(Fault::kData,
                  "blend: {} would give {} samples and has {}; lower its weight or leave weights "
                  "out",
                  parts_[part].name, taken[part], has);
    }
  }
}

void BlendedDataset::sample(std::int64_t index, Sample& sample) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  parts_[static_cast<std::size_t>(part(index))].source->sample(index_in_part(index), sample);
}

std::int64_t BlendedDataset::longest(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  return parts_[static_cast<std::size_t>(part(index))].source->longest(index_in_part(index));
}

void BlendedDataset::announce(std::int64_t index) const {
  PITON_ASSERT(index >= 0 && index < size(), "sample {} of {}", index, size());
  parts_[static_cast<std::size_t>(part(index))].source->announce(index_in_part(index));
}

}  // namespace piton
