#include "data/samples/batch_source.h"

#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/samples/numpy_random.h"

namespace piton {

BatchRules BatchRules::from(const DataOptions& options, std::optional<std::int32_t> eod,
                            std::optional<std::int32_t> pad, std::int64_t vocabulary) {
  BatchRules rules;
  rules.order = options.dataloader_type;
  rules.reset_position_ids = options.reset_position_ids;
  rules.reset_attention_mask = options.reset_attention_mask;
  rules.eod_mask_loss = options.eod_mask_loss;
  rules.eod = eod;
  if (pad != eod) rules.pad = pad;
  rules.vocabulary = vocabulary;
  return rules;
}

BatchSource::BatchSource(std::shared_ptr<const SampleSource> samples, BatchRules rules)
    : samples_(std::move(samples)),
      rules_(rules),
      ids_(static_cast<std::size_t>(samples_->sequence() + 1)) {
  if ((rules_.reset_position_ids || rules_.reset_attention_mask || rules_.eod_mask_loss) &&
      !rules_.eod) {
    throw Error(
        Fault::kUsage,
        "data: --reset-position-ids, --reset-attention-mask and --eod-mask-loss need an "
        "end-of-document id, and the tokenizer has none; leave them out or use another tokenizer");
  }
}

// Calls visit(first) with the place in the global batch of the first sample of each.
template <typename Visit>
void BatchSource::for_each_micro_batch(const BatchPlace& place, Visit&& visit) {
  const std::int64_t stride = place.micro_batch * place.ranks;
  PITON_ASSERT(place.micro_batch > 0 && place.rank >= 0 && place.rank < place.ranks &&
                   place.global_batch % stride == 0,
               "batch {} in micro-batches of {} on rank {} of {}", place.global_batch,
               place.micro_batch, place.rank, place.ranks);
  for (std::int64_t first = place.rank * place.micro_batch; first < place.global_batch;
       first += stride) {
    visit(first);
  }
}

std::vector<MicroBatch> BatchSource::batch(const BatchPlace& place) {
  std::vector<MicroBatch> batches;
  std::vector<std::int64_t> places(static_cast<std::size_t>(place.micro_batch));
  for_each_micro_batch(place, [&](std::int64_t first) {
    std::iota(places.begin(), places.end(), place.consumed_samples + first);
    batches.push_back(micro_batch(places));
    batches.back().sample_index = first;
  });
  return batches;
}

void BatchSource::announce(const BatchPlace& place) {
  const std::int64_t size = samples_->size();
  const bool cyclic = rules_.order == DataloaderType::kCyclic;
  for_each_micro_batch(place, [&](std::int64_t first) {
    for (std::int64_t i = 0; i < place.micro_batch; ++i) {
      const std::int64_t at = place.consumed_samples + first + i;
      // The order of an epoch is drawn when its first sample is read, not for advice.
      const bool known = size > 0 && (cyclic ? at / size == epoch_ : at < size);
      if (known) samples_->announce(sample_at(at));
    }
  });
}

MicroBatch BatchSource::micro_batch(std::span<const std::int64_t> places) {
  MicroBatch batch;
  batch.samples = static_cast<std::int64_t>(places.size());
  batch.sequence = samples_->sequence();
  const auto rows = static_cast<std::size_t>(batch.samples * batch.sequence);
  batch.tokens.resize(rows);
  batch.labels.resize(rows);
  batch.loss_mask.resize(rows);
  batch.positions.resize(rows);
  if (rules_.reset_attention_mask) batch.segments.resize(rows);
  std::size_t row = 0;
  for (const std::int64_t place : places) {
    fill(sample_at(place), row, batch);
    row += static_cast<std::size_t>(batch.sequence);
  }
  return batch;
}

std::int64_t BatchSource::sample_at(std::int64_t place) {
  const std::int64_t size = samples_->size();
  if (rules_.order == DataloaderType::kSingle || size == 0) {
    if (place >= size) {
      throw Error(Fault::kData,
                  "data: got a request for sample {}, but there are only {}; use --dataloader-type "
                  "cyclic, more data, or fewer steps",
                  place, size);
    }
    return place;
  }
  const std::int64_t epoch = place / size;
  if (epoch != epoch_) {
    permutation_.resize(static_cast<std::size_t>(size));
    NumpyRandom(static_cast<std::uint32_t>(epoch)).torch_permutation(permutation_);
    epoch_ = epoch;
  }
  return permutation_[static_cast<std::size_t>(place % size)];
}

void BatchSource::fill(std::int64_t sample, std::size_t row, MicroBatch& batch) {
  samples_->sample(sample, ids_);
  if (rules_.vocabulary > 0) {
    for (const std::int32_t id : ids_) {
      if (id < 0 || id >= rules_.vocabulary) {
        throw Error(
            Fault::kData,
            "data: sample {} holds id {}, the vocabulary has {}; were corpus and model made "
            "with one tokenizer?",
            sample, id, rules_.vocabulary);
      }
    }
  }
  std::int32_t position = 0, segment = 0;
  for (std::size_t i = 0; i + 1 < ids_.size(); ++i, ++row) {
    const std::int32_t token = ids_[i], label = ids_[i + 1];
    const bool learned =
        !(rules_.eod_mask_loss && token == rules_.eod) && !(rules_.pad && label == *rules_.pad);
    batch.tokens[row] = rules_.pad && token == *rules_.pad ? 0 : token;
    batch.labels[row] = learned ? label : -100;
    batch.loss_mask[row] = learned ? 1.0F : 0.0F;
    batch.positions[row] = position++;
    if (rules_.reset_attention_mask) batch.segments[row] = segment;
    if (rules_.eod && token == *rules_.eod) {
      ++segment;
      if (rules_.reset_position_ids) position = 0;
    }
  }
}

}  // namespace piton
