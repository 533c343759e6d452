#include "data/masked/bert_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/masked/masked_words.h"

namespace piton {
namespace {

// Takes tokens from random ends of the longer part until both have `target` together.
void shorten(std::span<const std::int32_t>& a, std::span<const std::int32_t>& b, std::size_t target,
             NumpyRandom& random) {
  while (a.size() + b.size() > target) {
    std::span<const std::int32_t>& longer = a.size() > b.size() ? a : b;
    longer = random.uniform() < 0.5 ? longer.subspan(1) : longer.first(longer.size() - 1);
  }
}

}  // namespace

BertDataset::BertDataset(MaskedData data, bool pairs) : data_(std::move(data)), pairs_(pairs) {}

void BertDataset::sample(std::int64_t index, Sample& sample) const {
  const SentenceSpan& span = data_.span(index);
  const Sentences sentences = read_sentences(*data_.corpus, span);
  NumpyRandom random = data_.random(index);
  std::span<const std::int32_t> a = sentences.ids;
  std::span<const std::int32_t> b;
  bool swapped = false;
  if (pairs_) {
    PITON_ASSERT(span.count > 1, "sample {} of one sentence", index);
    const auto pivot = 1 + random.interval(static_cast<std::uint64_t>(span.count) - 2);
    b = a.subspan(sentences.starts[pivot]);
    a = a.first(sentences.starts[pivot]);
    swapped = random.uniform() < 0.5;
    if (swapped) std::swap(a, b);
  }
  shorten(a, b, static_cast<std::size_t>(span.target), random);

  const MaskedVocabulary& vocabulary = *data_.vocabulary;
  std::vector<std::int32_t> ids = {vocabulary.cls};
  ids.insert(ids.end(), a.begin(), a.end());
  ids.push_back(vocabulary.sep);
  const std::size_t first_size = ids.size();
  if (!b.empty()) {
    ids.insert(ids.end(), b.begin(), b.end());
    ids.push_back(vocabulary.sep);
  }
  const MaskedText masked =
      mask_words(ids, span.target, vocabulary,
                 {.task = MaskedTask::kBert, .probability = data_.probability}, random);
  data_.set_row(masked.ids, sample);
  sample.types.assign(sample.tokens.size(), 0);
  std::fill(sample.types.begin() + static_cast<std::ptrdiff_t>(first_size),
            sample.types.begin() + static_cast<std::ptrdiff_t>(ids.size()), 1);
  sample.labels.assign(sample.tokens.size(), kNoLabel);
  for (const MaskedSpan& places : masked.spans) {
    for (const std::int32_t place : places) {
      const auto at = static_cast<std::size_t>(place);
      sample.labels[at] = vocabulary.shown(ids[at]);
    }
  }
  sample.swapped = swapped;
}

}  // namespace piton
