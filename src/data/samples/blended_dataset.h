// Blends several corpora, or other sources of samples, by weights, in Megatron-core 0.16.1's order
// to the bit.
//
// Sample i is the next sample of the part with the largest w * max(i, 1) - (samples taken from it
// so far); the first of equals wins. So every prefix of the blend is within one sample of its
// share. Weights are normalized by the sum of numpy.sum.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/samples/sample_source.h"

namespace piton {

// Weights divided by their sum, added in the order of numpy.sum (pairwise in blocks of eight).
std::vector<double> normalized(std::span<const double> weights);

// Samples that a blend takes from each part: ceil(N w). Each part is built with ceil(ceil(N w) *
// 1.005), so that the greedy order cannot run out.
std::int64_t blend_share(std::int64_t samples, double weight);
std::int64_t blend_share_built(std::int64_t samples, double weight);

class BlendedDataset final : public SampleSource {
 public:
  struct Part {
    std::string name;  // for messages
    std::shared_ptr<const SampleSource> source;
    double weight = 0;  // > 0
  };

  // A blend of `size` samples. Throws Error(kData) if a part has fewer samples than the blend
  // takes.
  BlendedDataset(std::vector<Part> parts, std::int64_t size);

  std::int64_t size() const override { return static_cast<std::int64_t>(part_of_.size()); }
  std::int64_t sequence() const override { return parts_.front().source->sequence(); }
  void sample(std::int64_t index, Sample& sample) const override;
  std::int64_t longest(std::int64_t index) const override;
  void announce(std::int64_t index) const override;

  // The part that gives sample `index`, and the index within that part.
  int part(std::int64_t index) const { return part_of_[static_cast<std::size_t>(index)]; }
  std::int64_t index_in_part(std::int64_t index) const {
    return index_in_part_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<Part> parts_;
  std::vector<std::int16_t> part_of_;
  std::vector<std::int64_t> index_in_part_;
};

}  // namespace piton
