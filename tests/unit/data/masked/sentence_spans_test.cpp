#include "data/masked/sentence_spans.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "masked_corpora.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

// Documents by the lengths of their sentences.
IndexedDataset corpus_of(const TempFolder& folder,
                         const std::vector<std::vector<std::size_t>>& documents) {
  const std::string prefix = (folder.path() / "corpus").string();
  IndexedWriter writer(prefix, IdType::kUint16);
  for (const auto& sentences : documents) {
    for (const std::size_t length : sentences)
      writer.add_sequence(std::vector<std::int32_t>(length, 7));
    writer.end_document();
  }
  writer.finish();
  return IndexedDataset::open(prefix);
}

TEST(SentenceSpans, EndAtTheTargetUnlessOneSentenceWouldBeLeft) {
  const TempFolder folder;
  const IndexedDataset corpus = corpus_of(folder, {{5, 5, 5, 5, 5}, {9}, {4, 20, 3}});
  SentenceSpans made = make_sentence_spans(corpus, {.end = 3, .longest = 10, .least_sentences = 2});
  EXPECT_EQ(made.epochs, 1);
  EXPECT_EQ(made.too_few, 1);
  std::sort(made.spans.begin(), made.spans.end(),
            [](const SentenceSpan& a, const SentenceSpan& b) { return a.first < b.first; });
  ASSERT_EQ(made.spans.size(), 3U);
  // After the fourth sentence one would be left: it belongs to the second run.
  EXPECT_EQ(made.spans[0].count, 2);
  EXPECT_EQ(made.spans[1].count, 3);
  EXPECT_EQ(made.spans[2].first, 6);
  EXPECT_EQ(made.spans[2].count, 3);
  EXPECT_EQ(read_sentences(corpus, made.spans[2]).starts, (std::vector<std::size_t>{0, 4, 24, 27}));
}

TEST(SentenceSpans, ReadWholeEpochsUntilThereAreEnough) {
  const TempFolder folder;
  const IndexedDataset corpus = corpus_of(folder, {{5, 5}, {5, 5}, {5, 5}});
  const SentenceSpans made = make_sentence_spans(corpus, {.end = 3, .samples = 7, .longest = 100});
  EXPECT_EQ(made.epochs, 3);
  EXPECT_EQ(made.spans.size(), 9U);
}

TEST(SentenceSpans, RefuseACorpusWithoutSentences) {
  const TempFolder folder;
  const IndexedDataset corpus = corpus_of(folder, {{50}, {60}, {513, 2}});
  EXPECT_EQ(
      message_of(
          Fault::kData,
          [&] { make_sentence_spans(corpus, {.end = 3, .longest = 10, .least_sentences = 2}); }),
      corpus.prefix() +
          ": no document can be used: of 3, 2 have fewer than 2 sentences, and 1 have a "
          "sentence of more than 512 tokens; make the corpus with piton preprocess "
          "--split-sentences");
}

}  // namespace
}  // namespace piton
