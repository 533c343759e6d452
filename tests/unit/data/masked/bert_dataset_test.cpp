#include "data/masked/bert_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "masked_corpora.h"

namespace piton {
namespace {

constexpr std::int64_t kSequence = 96;
constexpr std::int64_t kSamples = 10000;

using Ids = std::vector<std::int32_t>;

bool contains(const Ids& text, const Ids& part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end()) != text.end();
}

// The text of the sample before masking, without padding.
Ids restored(const Sample& sample) {
  Ids ids(sample.tokens.begin(), sample.tokens.begin() + sample.length);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (sample.labels[i] != kNoLabel) ids[i] = sample.labels[i];
  }
  return ids;
}

class BertDatasetTest : public ::testing::Test {
 protected:
  BertDatasetTest() {
    const auto tokenizer = masked_tokenizer(0);
    data_.corpus = masked_corpus("x");
    data_.vocabulary = std::make_shared<const MaskedVocabulary>(
        MaskedVocabulary::of(*tokenizer, MaskedTask::kBert));
    data_.spans = make_sentence_spans(*data_.corpus, {.end = data_.corpus->documents(),
                                                      .samples = kSamples,
                                                      .longest = kSequence - BertDataset::kAdded,
                                                      .short_probability = 0.1,
                                                      .least_sentences = 2});
    data_.sequence = kSequence;
  }
  MaskedData data_;
};

TEST_F(BertDatasetTest, TextsAreThoseOfTheCorpusWithTheirLabelsPutBack) {
  const BertDataset set(data_, true);
  ASSERT_GE(set.size(), kSamples);
  Sample sample;
  std::int64_t swapped = 0;
  for (std::int64_t k = 0; k < kSamples; ++k) {
    set.sample(k, sample);
    const Ids ids = restored(sample);
    const SentenceSpan& span = data_.span(k);
    ASSERT_LE(sample.length, span.target + BertDataset::kAdded);
    ASSERT_EQ(ids.front(), 2);
    ASSERT_EQ(ids.back(), 3);
    const auto ones = std::find(sample.types.begin(), sample.types.end(), 1);
    const auto first_end = static_cast<std::ptrdiff_t>(ones - sample.types.begin());
    ASSERT_EQ(std::count(ones, sample.types.end(), 1), sample.length - first_end);
    const Sentences whole = read_sentences(*data_.corpus, span);
    const Ids a(ids.begin() + 1, ids.begin() + first_end - 1);
    const Ids b(ids.begin() + first_end, ids.end() - 1);
    ASSERT_TRUE(contains(whole.ids, a) && contains(whole.ids, b)) << k;
    // Together they are the whole run, or as long as its target.
    ASSERT_EQ(std::ssize(a) + std::ssize(b),
              std::min<std::int64_t>(std::ssize(whole.ids), span.target));
    if (std::ssize(a) + std::ssize(b) == std::ssize(whole.ids)) {
      Ids joined = *sample.swapped ? b : a;
      const Ids& rest = *sample.swapped ? a : b;
      joined.insert(joined.end(), rest.begin(), rest.end());
      ASSERT_EQ(joined, whole.ids) << k;
    }
    swapped += *sample.swapped ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(swapped) / kSamples, 0.5, 0.02);  // 4 deviations of 0.005
}

TEST_F(BertDatasetTest, MasksFifteenPercentEightOfTenByTheMask) {
  const BertDataset set(data_, true);
  Sample sample;
  double masked = 0, by_mask = 0, kept = 0;
  for (std::int64_t k = 0; k < kSamples; ++k) {
    set.sample(k, sample);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
      if (sample.labels[i] == kNoLabel) continue;
      ASSERT_NE(sample.labels[i], 2);  // [CLS] and [SEP] stay
      ASSERT_NE(sample.labels[i], 3);
      ++count;
      by_mask += sample.tokens[i] == 4 ? 1 : 0;
      kept += sample.tokens[i] == sample.labels[i] ? 1 : 0;
    }
    const double most =
        std::min(0.15 * data_.span(k).target,
                 std::max(1.0, std::nearbyint(0.15 * static_cast<double>(sample.length))));
    ASSERT_LE(static_cast<double>(count), most);
    masked += static_cast<double>(count);
  }
  EXPECT_NEAR(by_mask / masked, 0.8, 0.01);
  EXPECT_NEAR(kept / masked, 0.1, 0.01);
}

TEST_F(BertDatasetTest, WithoutPairsASampleHasOnePart) {
  const BertDataset set(data_, false);
  Sample sample;
  set.sample(0, sample);
  const Ids ids = restored(sample);
  EXPECT_EQ(std::count(sample.types.begin(), sample.types.end(), 1), 0);
  EXPECT_EQ(sample.swapped, false);
  const Sentences whole = read_sentences(*data_.corpus, data_.span(0));
  EXPECT_TRUE(contains(whole.ids, Ids(ids.begin() + 1, ids.end() - 1)));
}

}  // namespace
}  // namespace piton
