// Samples, masks and random numbers equal those of Megatron-core 0.16.1 and NumPy; the first lines
// of the files say how they were made.
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "data/corpus/indexed_dataset.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "data/samples/gpt_dataset.h"
#include "data/samples/mock_corpus.h"
#include "data/samples/numpy_random.h"
#include "data/samples/pretraining_samples.h"
#include "sample_ids.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

const std::string kGolden = PITON_SOURCE_DIR "/tests/golden/";

std::vector<std::string> golden_lines(const std::string& name) {
  std::ifstream file(kGolden + name);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) lines.push_back(line);
  }
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

template <typename T = std::int64_t>
std::vector<T> numbers(const std::string& line) {
  std::istringstream words(line);
  std::vector<T> values;
  for (std::int64_t value; words >> value;) values.push_back(static_cast<T>(value));
  return values;
}

std::uint32_t crc(std::uint32_t from, const void* data, std::size_t bytes) {
  return static_cast<std::uint32_t>(
      ::crc32(from, static_cast<const Bytef*>(data), static_cast<uInt>(bytes)));
}

TEST(NumpyRandom, DrawsAndShufflesAsRandomStateDoes) {
  for (const std::string& line : golden_lines("numpy_random.txt")) {
    std::istringstream words(line);
    std::string kind;
    std::uint32_t seed;
    words >> kind >> seed;
    std::string rest;
    std::getline(words, rest);
    const auto values = numbers(rest);
    NumpyRandom random(seed);
    if (kind == "words") {
      for (const auto value : values) EXPECT_EQ(random.next32(), value) << line;
    } else if (kind == "uniform") {
      for (const auto value : values) EXPECT_EQ(random.uniform() * 0x1p53, value) << line;
    } else if (kind == "geometric") {
      for (const auto value : values) EXPECT_EQ(random.geometric(0.2), value) << line;
    } else {
      std::vector<std::int64_t> order(static_cast<std::size_t>(values[0]));
      std::iota(order.begin(), order.end(), 0);
      random.shuffle(std::span(order));
      if (kind == "shuffle") {
        EXPECT_EQ(order, std::vector<std::int64_t>(values.begin() + 1, values.end())) << line;
      } else {
        EXPECT_EQ(crc(0, order.data(), order.size() * 8), values[1]) << line;
      }
    }
  }
}

// The widely printed result of torch.manual_seed(0); torch.randperm(10).
TEST(NumpyRandom, PermutationEqualsTorchRandperm) {
  std::vector<std::int64_t> ten(10);
  NumpyRandom(0).torch_permutation(ten);
  EXPECT_EQ(ten, (std::vector<std::int64_t>{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}));
  std::vector<std::int64_t> order(1000), sorted(1000);
  NumpyRandom(3).torch_permutation(order);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(order, sorted);
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, sorted);
}

class GoldenSamples : public ::testing::TestWithParam<bool> {};

TEST_P(GoldenSamples, EqualMegatronsForEverySplitBlendAndEpochCount) {
  TempFolder cache;
  DataSets sets;
  SilentLog log;
  std::shared_ptr<const SampleSource> current;
  int compared = 0;
  for (const std::string& line : golden_lines("megatron_samples.txt")) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    if (kind == "case") {
      DataOptions options;
      std::string word;
      while (words >> word && word != "|") {
        options.data_path.push_back(std::isdigit(word[0]) ? word : kGolden + "megatron/" + word);
      }
      std::int64_t s = 0;
      std::uint32_t seed = 0;
      SampleCounts counts;
      words >> options.split >> word >> s >> word >> seed >> word >> counts.train >> counts.valid >>
          counts.test;
      if (GetParam()) options.data_cache_path = cache.path().string();
      sets = open_data_sets(options, {s, seed, counts}, log);
    } else if (kind == "set") {
      std::string name;
      std::int64_t size = 0;
      std::uint32_t wanted = 0;
      words >> name >> size >> wanted;
      current =
          name == "train" ? sets.train : (name == "valid" ? sets.valid : sets.test).at(0).source;
      ASSERT_EQ(current->size(), size) << line;
      std::uint32_t got = 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const std::vector<std::int32_t> ids = ids_of(*current, i);
        got = crc(got, ids.data(), ids.size() * 4);
      }
      EXPECT_EQ(got, wanted) << line;
      ++compared;
    } else {
      std::string rest;
      std::int64_t index = 0;
      words >> index;
      std::getline(words, rest);
      EXPECT_EQ(ids_of(*current, index), numbers<std::int32_t>(rest)) << line;
    }
  }
  EXPECT_GE(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(BuiltAndFromTheCache, GoldenSamples, ::testing::Bool());

// Of --mock-data: the lengths of its sequences, and samples of all three sets.
TEST(GoldenMock, EqualsMegatronsWithoutACorpus) {
  DataSets sets;
  SilentLog log;
  std::shared_ptr<const SampleSource> current;
  int compared = 0;
  for (const std::string& line : golden_lines("megatron_mock.txt")) {
    std::istringstream words(line);
    std::string kind, word;
    words >> kind;
    if (kind == "lengths") {
      std::uint32_t wanted = 0;
      words >> wanted;
      const MockCorpus corpus(2, 1);
      const std::vector<std::int32_t> lengths = corpus.lengths(0, corpus.sequences());
      EXPECT_EQ(crc(0, lengths.data(), lengths.size() * 4), wanted);
    } else if (kind == "case") {
      DataOptions options;
      options.mock_data = true;
      MockIds ids;
      std::int64_t s = 0;
      std::uint32_t seed = 0;
      SampleCounts counts;
      words >> ids.vocabulary >> ids.end_of_document >> word >> s >> word >> seed >> word >>
          counts.train >> counts.valid >> counts.test;
      sets = open_data_sets(options, {s, seed, counts, ids}, log);
    } else if (kind == "set") {
      std::int64_t size = 0;
      words >> word >> size;
      current =
          word == "train" ? sets.train : (word == "valid" ? sets.valid : sets.test).at(0).source;
      ASSERT_EQ(current->size(), size) << line;
    } else {
      std::int64_t index = 0;
      words >> index >> word;
      const std::vector<std::int32_t> ids = ids_of(*current, index);
      std::uint32_t wanted = 0;
      if (word == "crc") {
        words >> wanted;
        EXPECT_EQ(crc(0, ids.data(), ids.size() * 4), wanted) << line;
      } else {
        std::string rest;
        std::getline(words, rest);
        EXPECT_EQ(ids, numbers<std::int32_t>(word + rest)) << line;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 27);
}

TEST(MockCorpus, ReadsAnyPartOfASequence) {
  const MockCorpus corpus(10, 3);
  const std::int64_t length = corpus.lengths(5, 1)[0];
  ASSERT_GT(length, 12);
  std::vector<std::int32_t> all(static_cast<std::size_t>(length));
  EXPECT_EQ(corpus.read_some(5, 0, all), length);
  EXPECT_EQ(all[8], 9);
  EXPECT_EQ(all[9], 0);
  EXPECT_EQ(all.back(), 3);
  std::vector<std::int32_t> end(20, -7);
  EXPECT_EQ(corpus.read_some(5, length - 2, end), 2);
  EXPECT_EQ(end[0], all[all.size() - 2]);
  EXPECT_EQ(end[1], 3);
  EXPECT_EQ(end[2], -7);
  EXPECT_EQ(corpus.read_some(5, length, end), 0);
  EXPECT_EQ(corpus.read_some(5, length + 1, end), -1);
  EXPECT_EQ(corpus.read_some(5, -1, end), -1);
  EXPECT_EQ(corpus.fingerprint(), MockCorpus(10, 3).fingerprint());
  EXPECT_NE(corpus.fingerprint(), MockCorpus(11, 3).fingerprint());
  EXPECT_NE(corpus.fingerprint(), MockCorpus(10, 4).fingerprint());
}

TEST(MockCorpus, IsDividedByASplitThatIsGiven) {
  DataOptions options;
  options.mock_data = true;
  options.split = "100,0,0";
  SilentLog log;
  const DataSets all = open_data_sets(options, {1024, 1, {10, 0, 0}, {10, 9}}, log);
  EXPECT_TRUE(all.valid.empty());
  options.split = DataOptions().split;
  const DataSets thirds = open_data_sets(options, {1024, 1, {10, 10, 0}, {10, 9}}, log);
  EXPECT_NEAR(static_cast<double>(all.train->size()) / static_cast<double>(thirds.train->size()),
              3.0, 0.02);
  EXPECT_EQ(thirds.fingerprints.size(), 1U);
  EXPECT_TRUE(thirds.corpora.empty());
  options.data_path = {"corpus"};
  EXPECT_EQ(
      message_of(Fault::kUsage,
                 [&] {
                   open_data_sets(options, {1024, 1, {10, 10, 0}, {10, 9}}, log);
                 }),
      "--mock-data: corpora are named too; leave out --mock-data, or --data-path and its like");
}

TEST(GoldenCorpus, IsRewrittenByteForByte) {
  TempFolder folder;
  for (const char* name : {"a", "b", "c"}) {
    const std::string original = kGolden + "megatron/" + name;
    const auto corpus = IndexedDataset::open(original);
    IndexedWriter writer(folder / name, corpus.type());
    writer.add_corpus(corpus);
    writer.finish();
    for (const char* ending : {".bin", ".idx"}) {
      EXPECT_EQ(read_text_file(folder / (name + std::string(ending))),
                read_text_file(original + ending))
          << name;
    }
  }
}

class OneRow final : public TokenSource {
 public:
  explicit OneRow(std::vector<std::int32_t> ids) : ids_(std::move(ids)) {}
  std::int64_t size() const override { return 1; }
  std::int64_t sequence() const override { return static_cast<std::int64_t>(ids_.size()) - 1; }
  void read(std::int64_t, std::span<std::int32_t> ids) const override {
    std::copy(ids_.begin(), ids_.end(), ids.begin());
  }

 private:
  std::vector<std::int32_t> ids_;
};

TEST(GoldenMasks, TokensLabelsLossAndPositionsEqualMegatrons) {
  const auto lines = golden_lines("megatron_masks.txt");
  ASSERT_EQ(lines.size() % 6, 0U);
  for (std::size_t i = 0; i < lines.size(); i += 6) {
    const auto flags = numbers(lines[i].substr(5));
    DocumentRules rules{.reset_position_ids = flags[0] != 0,
                        .reset_attention_mask = flags[1] != 0,
                        .eod_mask_loss = flags[2] != 0,
                        .eod = 7,
                        .pad = 3};
    const auto rows = std::make_shared<OneRow>(numbers<std::int32_t>(lines[i + 1]));
    BatchSource source(std::make_shared<PretrainingSamples>(rows, rules), {.vocabulary = 12});
    const auto batch = source.batch({}).at(0);
    const auto labels = numbers<std::int32_t>(lines[i + 3]);
    const auto loss = numbers<float>(lines[i + 4]);
    EXPECT_EQ(batch.tokens, numbers<std::int32_t>(lines[i + 2]));
    EXPECT_EQ(batch.loss_mask, loss);
    EXPECT_EQ(batch.positions, numbers<std::int32_t>(lines[i + 5]));
    for (std::size_t j = 0; j < labels.size(); ++j)
      EXPECT_EQ(batch.labels[j], loss[j] == 0 ? -100 : labels[j]);
    // Where positions restart, so do segments.
    if (flags[1] != 0) {
      ASSERT_EQ(batch.segments.size(), batch.tokens.size());
      for (std::size_t j = 1; j < labels.size(); ++j) {
        EXPECT_EQ(batch.segments[j] - batch.segments[j - 1], batch.positions[j] == 0 ? 1 : 0);
      }
    } else {
      EXPECT_TRUE(batch.segments.empty());
    }
  }
}

}  // namespace
}  // namespace piton
