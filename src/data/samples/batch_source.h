// Makes micro-batches from samples. A global batch does not depend on the number of ranks.
//
// A global batch is the samples [consumed, consumed + B) in the order of the run. With
// micro-batches of b samples on D data-parallel ranks, micro-batch m of rank d takes these samples
// of the global batch (Megatron's order):
//   [m b D + d b, m b D + (d + 1) b)
// The number `consumed` alone is the position of a run in its data, so a run may resume with
// another D or b.
//
// A sample t[0..s] gives tokens t[0..s), labels t[1..s], and
//   loss mask     1; 0 where the input token is an end of document under eod_mask_loss, and where
//                 the label is the pad id
//   positions     0..s-1; under reset_position_ids from 0 again after each end of document
//   segments      under reset_attention_mask: how many ends of documents precede the token in its
//                 sample (an end of document belongs to the document that it ends); else empty
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/samples/batch.h"
#include "data/samples/data_options.h"
#include "data/samples/sample_source.h"

namespace piton {

struct BatchRules {
  DataloaderType order = DataloaderType::kSingle;
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  std::optional<std::int32_t> eod = {};  // needed by the three above
  // Unset if it is also the end of document: labels that end a text would be ignored.
  std::optional<std::int32_t> pad = {};
  std::int64_t vocabulary = 0;  // ids must be below it; 0: not checked

  static BatchRules from(const DataOptions& options, std::optional<std::int32_t> eod,
                         std::optional<std::int32_t> pad, std::int64_t vocabulary);
};

struct BatchPlace {
  std::int64_t consumed_samples = 0;
  std::int64_t global_batch = 1;  // B, a multiple of D b
  std::int64_t micro_batch = 1;   // b
  std::int64_t rank = 0;          // d
  std::int64_t ranks = 1;         // D
};

class BatchSource {
 public:
  // Throws Error(kUsage) if a rule needs an end-of-document id and there is none.
  BatchSource(std::shared_ptr<const SampleSource> samples, BatchRules rules);

  // All B / (D b) micro-batches of this rank. Throws Error(kData) if the samples are used up (not
  // under kCyclic) or an id is not below the vocabulary. Not thread-safe under kCyclic.
  std::vector<MicroBatch> batch(const BatchPlace& place);

  // The same micro-batches will be asked for soon: tells the system what will be read
  // (SampleSource::announce). Not those beyond the samples or, under kCyclic, in another epoch.
  void announce(const BatchPlace& place);

  // One micro-batch of the samples at positions `places` [b] in the order of the run.
  MicroBatch micro_batch(std::span<const std::int64_t> places);

  const SampleSource& samples() const { return *samples_; }

 private:
  template <typename Visit>
  static void for_each_micro_batch(const BatchPlace& place, Visit&& visit);
  std::int64_t sample_at(std::int64_t place);
  void fill(std::int64_t sample, std::size_t row, MicroBatch& batch);

  std::shared_ptr<const SampleSource> samples_;
  BatchRules rules_;
  std::vector<std::int32_t> ids_;          // [s + 1]
  std::int64_t epoch_ = -1;                // epoch of permutation_
  std::vector<std::int64_t> permutation_;  // kCyclic: [samples]
};

}  // namespace piton
