// Collects samples to micro-batches. A global batch does not depend on the number of ranks.
//
// A global batch is the samples [consumed, consumed + B) in the order of the run. With
// micro-batches of b samples on D data-parallel ranks, micro-batch m of rank d takes these samples
// of the global batch (Megatron's order):
//   [m b D + d b, m b D + (d + 1) b)
// Micro-batches of unequal sizes b_0, b_1, .. take b_m D samples from D (b_0 + .. + b_{m-1}) on.
// The number `consumed` alone is the position of a run in its data, so a run may resume with
// another D or b.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "data/samples/batch.h"
#include "data/samples/data_options.h"
#include "data/samples/sample_source.h"

namespace piton {

struct BatchRules {
  DataloaderType order = DataloaderType::kSingle;
  std::int64_t vocabulary = 0;  // ids must be below it; 0: not checked
  // Rows are as long as the longest sample of the global batch, rounded up to a multiple of this,
  // and at most s. Unset: all have s tokens. All micro-batches and ranks get the same length.
  std::optional<std::int64_t> length_multiple = {};
  bool has_source = false;  // samples have a decoder (Sample::decoder): batches have a source
};

struct BatchPlace {
  std::int64_t consumed_samples = 0;
  std::int64_t global_batch = 1;  // B, a multiple of D b
  std::int64_t micro_batch = 1;   // b
  // In place of b: samples of each micro-batch of this rank. D times their sum is B.
  std::vector<std::int64_t> sizes = {};
  std::int64_t rank = 0;   // d
  std::int64_t ranks = 1;  // D
};

class BatchSource {
 public:
  BatchSource(std::shared_ptr<const SampleSource> samples, BatchRules rules);

  // All micro-batches of this rank, B / (D b) or as many as there are sizes. Throws Error(kData) if
  // the samples are used up (not under kCyclic) or an id is not below the vocabulary. Not
  // thread-safe.
  std::vector<MicroBatch> batch(const BatchPlace& place);

  // The same micro-batches will be asked for soon: tells the system what will be read
  // (SampleSource::announce). Not those beyond the samples or, under kCyclic, in another epoch.
  void announce(const BatchPlace& place);

  // One micro-batch of the samples at positions `places` [b] in the order of the run, of s tokens
  // each.
  MicroBatch micro_batch(std::span<const std::int64_t> places);

  const SampleSource& samples() const { return *samples_; }
  // The number in samples() of the sample at this place in the order of the run. Throws
  // Error(kData) if the samples are used up.
  std::int64_t sample_at(std::int64_t place);

  // Calls visit(first, size) for each micro-batch of this rank: the place in the global batch of
  // its first sample, and the number of its samples.
  template <typename Visit>
  static void for_each_micro_batch(const BatchPlace& place, Visit&& visit) {
    PITON_ASSERT(place.micro_batch > 0 && place.rank >= 0 && place.rank < place.ranks,
                 "micro-batches of {} on rank {} of {}", place.micro_batch, place.rank,
                 place.ranks);
    std::int64_t begin = 0;
    for (std::size_t m = 0; begin < place.global_batch; ++m) {
      PITON_ASSERT(place.sizes.empty() || m < place.sizes.size(), "{} of {} samples in {} sizes",
                   begin, place.global_batch, m);
      const std::int64_t size = place.sizes.empty() ? place.micro_batch : place.sizes[m];
      visit(begin + place.rank * size, size);
      begin += size * place.ranks;
    }
    PITON_ASSERT(begin == place.global_batch, "batch {} in micro-batches of {} on {} ranks",
                 place.global_batch, place.micro_batch, place.ranks);
  }

  // Tokens of the rows of a batch whose longest sample has `longest`: the next multiple, but at
  // most `most`.
  static std::int64_t padded_length(std::int64_t longest, std::int64_t multiple,
                                    std::int64_t most) {
    return std::min((longest + multiple - 1) / multiple * multiple, most);
  }

 private:
  std::int64_t row_length(const BatchPlace& place);
  MicroBatch rows_with_source(std::span<const std::int64_t> places);
  MicroBatch rows(std::span<const std::int64_t> places, std::int64_t length);
  void check_ids(std::int64_t sample) const;

  std::shared_ptr<const SampleSource> samples_;
  BatchRules rules_;
  Sample sample_;                          // that is being copied
  std::int64_t epoch_ = -1;                // epoch of permutation_
  std::vector<std::int64_t> permutation_;  // kCyclic: [samples]
};

}  // namespace piton
