#include "data/masked/t5_dataset.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/masked/masked_words.h"

namespace piton {

T5Dataset::T5Dataset(MaskedData data, std::int64_t decoder_sequence)
    : data_(std::move(data)), decoder_sequence_(decoder_sequence) {}

// `length`: tokens of the decoder.
void T5Dataset::check(const SentenceSpan& span, std::int64_t spans, std::int64_t length) const {
  const std::int64_t sentinels = std::ssize(data_.vocabulary->sentinels);
  if (spans > sentinels) {
    throw Error(Fault::kData,
                "{}: the sample at sentence {} has {} masked spans, and the tokenizer has {} "
                "sentinels; give a larger --vocab-extra-ids or a lower --mask-prob",
                data_.corpus->prefix(), span.first, spans, sentinels);
  }
  if (length > decoder_sequence_) {
    throw Error(Fault::kData,
                "{}: the {} masked spans of the sample at sentence {} take {} tokens of the "
                "decoder, wanted at most {}; raise --decoder-seq-length or lower --mask-prob",
                data_.corpus->prefix(), spans, span.first, length, decoder_sequence_);
  }
}

void T5Dataset::sample(std::int64_t index, Sample& sample) const {
  const SentenceSpan& span = data_.span(index);
  const Sentences sentences = read_sentences(*data_.corpus, span);
  const std::span<const std::int32_t> whole = sentences.ids;
  const auto ids = whole.first(std::min(whole.size(), static_cast<std::size_t>(span.target)));
  const MaskedVocabulary& vocabulary = *data_.vocabulary;
  NumpyRandom random = data_.random(index);
  const MaskedText masked =
      mask_words(ids, span.target, vocabulary,
                 {.task = MaskedTask::kT5, .probability = data_.probability}, random);
  std::int64_t length = 1 + std::ssize(masked.spans);
  for (const MaskedSpan& places : masked.spans) length += std::ssize(places);
  check(span, std::ssize(masked.spans), length);

  std::vector<std::int32_t> encoder;
  std::vector<std::int32_t> decoder = {vocabulary.bos};
  std::size_t at = 0;
  const auto copy_up_to = [&](std::size_t end) {
    for (; at < end; ++at) encoder.push_back(ids[at]);
  };
  for (std::size_t i = 0; i < masked.spans.size(); ++i) {
    const MaskedSpan& places = masked.spans[i];
    copy_up_to(static_cast<std::size_t>(places.front()));
    encoder.push_back(vocabulary.sentinels[i]);
    decoder.push_back(vocabulary.sentinels[i]);
    for (const std::int32_t place : places) decoder.push_back(ids[static_cast<std::size_t>(place)]);
    at = static_cast<std::size_t>(places.back()) + 1;
  }
  copy_up_to(ids.size());

  data_.set_row(encoder, sample);
  const auto size = static_cast<std::size_t>(decoder_sequence_);
  sample.decoder_segments.resize(size, kPaddingSegment);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    if (decoder[i] != vocabulary.pad) sample.decoder_segments[i] = 0;
    if (i > 0) decoder[i] = vocabulary.shown(decoder[i]);
  }
  sample.labels.assign(decoder.begin() + 1, decoder.end());
  sample.labels.push_back(vocabulary.eos);
  sample.labels.resize(size, kNoLabel);
  decoder.resize(size);
  sample.decoder = std::move(decoder);
}

}  // namespace piton
