#include "data/masked/sentence_spans.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <thread>

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

// What Megatron-core 0.16.1's build_mapping does (datasets/helpers.cpp), in its order: the first
// sentence, the one after the last, and the target of each run.
std::vector<std::array<std::int64_t, 3>> build_mapping(
    const std::vector<std::vector<std::size_t>>& documents, const SentenceRequest& request) {
  std::vector<std::array<std::int64_t, 3>> maps;
  std::mt19937 random(request.seed);
  const auto ratio =
      request.short_probability > 0 ? std::llround(1 / request.short_probability) : 0;
  const auto draw_target = [&]() -> std::int64_t {
    if (ratio == 0) return request.longest;
    const auto drawn = static_cast<std::int64_t>(random());
    return drawn % ratio == 0 ? 2 + drawn % (request.longest - 1) : request.longest;
  };
  while (std::ssize(maps) < request.samples.value_or(1)) {
    std::int64_t sentence = 0;
    for (const auto& lengths : documents) {
      std::int64_t left = std::ssize(lengths);
      std::int64_t first = sentence;
      sentence += left;
      const bool has_long = left > 1 && *std::ranges::max_element(lengths) > 512;
      if (left < request.least_sentences || has_long) continue;
      std::int64_t tokens = 0, count = 0, target = draw_target();
      for (const std::size_t length : lengths) {
        tokens += static_cast<std::int64_t>(length);
        ++count;
        --left;
        if ((tokens >= target && left > 1 && count >= request.least_sentences) || left == 0) {
          maps.push_back({first, sentence - left, target});
          first = sentence - left;
          target = draw_target();
          tokens = 0;
          count = 0;
        }
      }
    }
  }
  std::mt19937_64 shuffling(request.seed + 1);
  for (std::size_t i = maps.size() - 1; i > 0; --i) std::swap(maps[i], maps[shuffling() % (i + 1)]);
  return maps;
}

// More documents and more sentences than are read at once, and a document of more sentences.
std::vector<std::vector<std::size_t>> many_documents() {
  std::mt19937 random(7);
  std::vector<std::vector<std::size_t>> documents(20000);
  for (auto& lengths : documents) {
    lengths.resize(random() % 14);
    for (std::size_t& length : lengths) length = random() % 6;
    if (!lengths.empty() && random() % 200 == 0) lengths.back() = 513 - random() % 2;
  }
  documents[9000].assign(300000, 1);
  documents[19999] = {4};
  return documents;
}

std::vector<std::array<std::int64_t, 3>> values_of(const SentenceSpans& made) {
  std::vector<std::array<std::int64_t, 3>> values;
  for (const SentenceSpan& span : made.spans)
    values.push_back({span.first, span.first + span.count, span.target});
  return values;
}

TEST(SentenceSpans, OfManyDocumentsAreThoseOfMegatron) {
  const TempFolder folder;
  const auto documents = many_documents();
  const IndexedDataset corpus = corpus_of(folder, documents);
  const auto request = [&](std::int64_t longest, double probability, std::int64_t least,
                           std::optional<std::int64_t> samples = {}) {
    return SentenceRequest{.end = corpus.documents(),
                           .samples = samples,
                           .longest = longest,
                           .short_probability = probability,
                           .seed = 1234,
                           .least_sentences = least};
  };
  for (const SentenceRequest& one :
       {request(40, 0.1, 2), request(40, 0.1, 1), request(9, 0, 2), request(17, 1, 1),
        request(2, 1, 2), request(12, 0.3, 2, 250000), request(2147483647, 1e-9, 1)}) {
    const SentenceSpans made = make_sentence_spans(corpus, one);
    EXPECT_TRUE(values_of(made) == build_mapping(documents, one))
        << one.longest << " " << one.short_probability << " " << one.least_sentences;
    EXPECT_EQ(made.epochs > 1, one.samples.has_value());
    EXPECT_EQ(made.too_long, std::ranges::count_if(documents, [](const auto& lengths) {
                return lengths.size() > 1 && *std::ranges::max_element(lengths) > 512;
              }));
    EXPECT_EQ(made.too_few, std::ranges::count_if(documents, [&](const auto& lengths) {
                return std::ssize(lengths) < one.least_sentences;
              }));
  }
}

TEST(SentenceSpans, DoNotDependOnTheNumberOfProcessors) {
  const TempFolder folder;
  const auto documents = many_documents();
  const IndexedDataset corpus = corpus_of(folder, documents);
  const SentenceRequest request{
      .end = corpus.documents(), .longest = 30, .short_probability = 0.1, .least_sentences = 2};
  SentenceSpans alone;
  std::jthread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    alone = make_sentence_spans(corpus, request);
  }).join();
  EXPECT_TRUE(values_of(alone) == values_of(make_sentence_spans(corpus, request)));
}

}  // namespace
}  // namespace piton
