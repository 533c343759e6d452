#include "data/samples/batch_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "data/samples/numpy_random.h"

namespace piton {

BatchSource::BatchSource(std::shared_ptr<const SampleSource> samples, BatchRules rules)
    : samples_(std::move(samples)), rules_(rules) {
  PITON_ASSERT(rules_.length_multiple.value_or(1) > 0, "a multiple of {}", *rules_.length_multiple);
}

std::vector<MicroBatch> BatchSource::batch(const BatchPlace& place) {
  std::vector<MicroBatch> batches;
  std::vector<std::int64_t> places;
  const std::int64_t length = row_length(place);
  for_each_micro_batch(place, [&](std::int64_t first, std::int64_t size) {
    places.resize(static_cast<std::size_t>(size));
    std::iota(places.begin(), places.end(), place.consumed_samples + first);
    batches.push_back(rows(places, length));
    batches.back().sample_index = first;
  });
  return batches;
}

void BatchSource::announce(const BatchPlace& place) {
  const std::int64_t size = samples_->size();
  const bool cyclic = rules_.order == DataloaderType::kCyclic;
  for_each_micro_batch(place, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = place.consumed_samples + first + i;
      // The order of an epoch is drawn when its first sample is read, not for advice.
      const bool known = size > 0 && (cyclic ? at / size == epoch_ : at < size);
      if (known) samples_->announce(sample_at(at));
    }
  });
}

MicroBatch BatchSource::micro_batch(std::span<const std::int64_t> places) {
  return rows(places, samples_->sequence());
}

// The lengths of all samples of the global batch decide, on every rank alike.
std::int64_t BatchSource::row_length(const BatchPlace& place) {
  if (!rules_.length_multiple) return samples_->sequence();
  std::int64_t longest = 1;
  for (std::int64_t i = 0; i < place.global_batch; ++i) {
    longest = std::max(longest, samples_->longest(sample_at(place.consumed_samples + i)));
  }
  return padded_length(longest, *rules_.length_multiple, samples_->sequence());
}

// Of samples with a decoder: its rows, and what its encoder reads.
MicroBatch BatchSource::rows_with_source(std::span<const std::int64_t> places) {
  MicroBatch batch{.samples = std::ssize(places)};
  const auto append = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const std::int64_t place : places) {
    const std::int64_t index = sample_at(place);
    samples_->sample(index, sample_);
    check_ids(index);
    batch.sequence = std::ssize(sample_.decoder);
    batch.source.sequence = std::ssize(sample_.tokens);
    append(batch.source.tokens, sample_.tokens);
    batch.source.lengths.push_back(static_cast<std::int32_t>(sample_.length));
    append(batch.tokens, sample_.decoder);
    append(batch.labels, sample_.labels);
    for (std::int64_t i = 0; i < batch.sequence; ++i)
      batch.positions.push_back(static_cast<std::int32_t>(i));
  }
  for (const std::int32_t label : batch.labels)
    batch.loss_mask.push_back(label == kNoLabel ? 0.0F : 1.0F);
  return batch;
}

MicroBatch BatchSource::rows(std::span<const std::int64_t> places, std::int64_t length) {
  if (rules_.has_source) return rows_with_source(places);
  MicroBatch batch;
  batch.samples = static_cast<std::int64_t>(places.size());
  batch.sequence = length;
  const auto whole = static_cast<std::size_t>(batch.samples * length);
  batch.tokens.resize(whole);
  batch.labels.resize(whole);
  batch.loss_mask.resize(whole);
  batch.positions.resize(whole);
  std::size_t row = 0;
  for (const std::int64_t place : places) {
    const std::int64_t index = sample_at(place);
    samples_->sample(index, sample_);
    check_ids(index);
    const auto copy = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
      std::copy_n(from.begin(), length, to.begin() + static_cast<std::ptrdiff_t>(row));
    };
    copy(sample_.tokens, batch.tokens);
    copy(sample_.labels, batch.labels);
    copy(sample_.positions, batch.positions);
    if (!sample_.segments.empty()) {
      batch.segments.resize(whole);  // 0 for samples of one segment
      copy(sample_.segments, batch.segments);
    }
    if (!sample_.types.empty()) {
      batch.types.resize(whole);
      copy(sample_.types, batch.types);
    }
    if (sample_.target) {
      batch.targets.resize(whole);
      for (std::size_t i = row; i < row + static_cast<std::size_t>(length); ++i) {
        if (batch.labels[i] == kNumberLabel) batch.targets[i] = *sample_.target;
      }
    }
    if (!sample_.label_set.empty()) {
      batch.label_sets.insert(batch.label_sets.end(), sample_.label_set.begin(),
                              sample_.label_set.end());
      for (std::size_t i = row; i < row + static_cast<std::size_t>(length); ++i) {
        if (batch.labels[i] != kNoLabel)
          batch.labels[i] = static_cast<std::int32_t>(row / static_cast<std::size_t>(length));
      }
    }
    if (sample_.swapped) batch.pair_labels.push_back(*sample_.swapped ? 1 : 0);
    for (Answer answer : sample_.answers) {
      answer.begin += static_cast<std::int64_t>(row);
      answer.end += static_cast<std::int64_t>(row);
      batch.answers.push_back(answer);
    }
    for (std::int64_t i = 0; i < length; ++i, ++row) {
      batch.loss_mask[row] = batch.labels[row] == kNoLabel ? 0.0F : 1.0F;
    }
  }
  return batch;
}

void BatchSource::check_ids(std::int64_t sample) const {
  const auto length = static_cast<std::size_t>(samples_->sequence());
  const std::size_t labels = rules_.has_source ? sample_.decoder.size() : length;
  PITON_ASSERT(sample_.tokens.size() == length && sample_.labels.size() == labels &&
                   sample_.positions.size() == length &&
                   (sample_.segments.empty() || sample_.segments.size() == length) &&
                   sample_.length <= samples_->longest(sample),
               "sample {}: not of {} tokens", sample, length);
  if (rules_.vocabulary == 0) return;
  const auto check = [&](std::int32_t id) {
    if (id >= 0 && id < rules_.vocabulary) return;
    throw Error(Fault::kData,
                "data: sample {} holds id {}, the vocabulary has {}; were corpus and model made "
                "with one tokenizer?",
                sample, id, rules_.vocabulary);
  };
  for (const std::int32_t id : sample_.tokens) check(id);
  for (const std::int32_t id : sample_.decoder) check(id);
  for (const std::int32_t id : sample_.labels) {
    if (id != kNoLabel) check(id);
  }
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

}  // namespace piton
