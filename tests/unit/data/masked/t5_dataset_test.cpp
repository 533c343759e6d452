#include "data/masked/t5_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "masked_corpora.h"
#include "support/errors.h"

namespace piton {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kFirstSentinel = 302;

MaskedSettings settings_of(std::int64_t sequence, std::int64_t decoder) {
  MaskedSettings settings{.task = MaskedTask::kT5, .sequence = sequence};
  settings.decoder_sequence = decoder;
  return settings;
}

// The text before masking: each sentinel of the encoder replaced by its span in the decoder.
Ids text_of(const Sample& sample) {
  std::map<std::int32_t, Ids> spans;
  std::int32_t sentinel = 0;
  for (std::size_t i = 1; i < sample.decoder.size() && sample.labels[i - 1] != 301; ++i) {
    EXPECT_EQ(sample.labels[i - 1], sample.decoder[i]);
    if (sample.decoder[i] >= kFirstSentinel) {
      sentinel = sample.decoder[i];
      EXPECT_TRUE(spans.try_emplace(sentinel).second) << "a sentinel twice";
    } else {
      spans[sentinel].push_back(sample.decoder[i]);
    }
  }
  Ids text;
  for (std::int64_t i = 0; i < sample.length; ++i) {
    const std::int32_t id = sample.tokens[static_cast<std::size_t>(i)];
    if (id < kFirstSentinel) {
      text.push_back(id);
    } else {
      text.insert(text.end(), spans.at(id).begin(), spans.at(id).end());
      spans.erase(id);
    }
  }
  EXPECT_TRUE(spans.empty()) << "a span without its sentinel";
  return text;
}

TEST(T5Dataset, EncoderAndDecoderTogetherAreTheTextOfTheCorpus) {
  constexpr std::int64_t kSequence = 128, kSamples = 10000;
  const auto corpus = masked_corpus("x");
  const auto set = masked_source("x", settings_of(kSequence, 64), kSamples);
  const SentenceSpans spans =
      make_sentence_spans(*corpus, {.end = corpus->documents(),
                                    .samples = kSamples,
                                    .longest = kSequence - T5Dataset::kAdded,
                                    .short_probability = 0.1});
  ASSERT_EQ(set->size(), std::ssize(spans.spans));
  Sample sample;
  std::int64_t rebuilt = 0;
  for (std::int64_t k = 0; k < kSamples; ++k) {
    set->sample(k, sample);
    const SentenceSpan& span = spans.spans[static_cast<std::size_t>(k)];
    Ids whole = read_sentences(*corpus, span).ids;
    whole.resize(std::min(whole.size(), static_cast<std::size_t>(span.target)));
    // [CLS] and [SEP] in a text are in no word; one between two words of a span is lost, as in
    // Megatron-core.
    const auto is_word = [](std::int32_t id) { return id != 2 && id != 3; };
    if (std::all_of(whole.begin(), whole.end(), is_word)) {
      ASSERT_EQ(text_of(sample), whole) << k;
      ++rebuilt;
    }
    ASSERT_EQ(sample.decoder.front(), 300);
    ASSERT_EQ(std::count(sample.labels.begin(), sample.labels.end(), 301), 1);
    ASSERT_EQ(sample.decoder.size(), sample.labels.size());
  }
  EXPECT_GT(rebuilt, kSamples / 4);
}

// What reading the samples of `source` says.
std::string refusal(const SampleSource& source) {
  return message_of(Fault::kData, [&] {
    Sample sample;
    for (std::int64_t k = 0; k < source.size(); ++k) source.sample(k, sample);
  });
}

TEST(T5Dataset, RefusesSpansThatDoNotFitIntoTheDecoder) {
  EXPECT_THAT(refusal(*masked_source("y", settings_of(128, 4), 10)),
              ::testing::ContainsRegex(
                  "masked/y: the [0-9]+ masked spans of the sample at sentence [0-9]+ take [0-9]+ "
                  "tokens of the decoder, wanted at most 4; raise --decoder-seq-length or lower "
                  "--mask-prob"));
  EXPECT_THAT(refusal(*masked_source("y", settings_of(128, 64), 10, 1)),
              ::testing::ContainsRegex(
                  "masked/y: the sample at sentence [0-9]+ has [0-9]+ masked spans, and the "
                  "tokenizer has 1 sentinels; give a larger --vocab-extra-ids or a lower "
                  "--mask-prob"));
}

}  // namespace
}  // namespace piton
