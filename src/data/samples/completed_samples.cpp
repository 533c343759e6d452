#include "data/samples/completed_samples.h"

#include "data/samples/instruction_dataset.h"

namespace piton {

void CompletedSamples::sample(std::int64_t index, Sample& sample) const {
  if (index < samples_->size()) return samples_->sample(index, sample);
  sample = {.tokens = {0}, .labels = {kNoLabel}, .positions = {0}, .segments = {}, .length = 1};
  pad_sample(/*pad=*/0, sequence(), sample);
}

}  // namespace piton
