#include "data/samples/batch_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "data/samples/blend_plan.h"
#include "data/samples/data_sets.h"
#include "data/samples/index_cache.h"
#include "data/samples/pretraining_samples.h"
#include "sample_ids.h"
#include "support/temp_folder.h"
#include "unit/data/small_corpora.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

// Sample i is i, i+1, ...
class CountingRows final : public TokenSource {
 public:
  explicit CountingRows(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  std::int64_t sequence() const override { return 4; }
  void read(std::int64_t index, std::span<std::int32_t> ids) const override {
    for (auto& id : ids) id = static_cast<std::int32_t>(index++);
  }

 private:
  std::int64_t size_;
};

std::shared_ptr<const SampleSource> counting(std::int64_t size, DocumentRules rules = {}) {
  return std::make_shared<PretrainingSamples>(std::make_shared<CountingRows>(size), rules);
}

TEST(BatchSource, AStepReadsTheSameSamplesHoweverManyRanksShareIt) {
  for (const auto order : {DataloaderType::kSingle, DataloaderType::kCyclic}) {
    BatchSource source(counting(100), {.order = order});
    std::map<std::int64_t, std::int32_t> reference;
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      for (const std::int64_t micro : {1, 2, 3}) {
        const std::int64_t batch = 36;
        if (batch % (ranks * micro) != 0) continue;
        std::map<std::int64_t, std::int32_t> seen;  // index in the global batch -> first token
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          for (const MicroBatch& part : source.batch({.consumed_samples = 48,
                                        .global_batch = batch,
                                        .micro_batch = micro,
                                        .rank = rank,
                                        .ranks = ranks})) {
            for (std::int64_t i = 0; i < part.samples; ++i) {
              EXPECT_TRUE(
                  seen.emplace(part.sample_index + i, part.tokens[static_cast<std::size_t>(i * 4)])
                      .second);
            }
          }
        }
        EXPECT_EQ(seen.size(), 36U);
        if (reference.empty()) reference = seen;
        EXPECT_EQ(seen, reference) << ranks << " ranks, micro-batches of " << micro;
      }
    }
  }
}

TEST(BatchSource, RankTakesItsSlotOfEachMicroBatch) {
  BatchSource source(counting(100), {});
  const auto parts = source.batch(
      {.consumed_samples = 10, .global_batch = 12, .micro_batch = 2, .rank = 1, .ranks = 3});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].sample_index, 2);
  EXPECT_EQ(parts[1].sample_index, 8);
  EXPECT_EQ(parts[1].tokens, (std::vector<std::int32_t>{18, 19, 20, 21, 19, 20, 21, 22}));
  EXPECT_EQ(parts[1].labels[0], 19);
}

TEST(BatchSource, MicroBatchesOfUnequalSizesFollowOneAnother) {
  BatchSource source(counting(100), {});
  std::vector<std::vector<std::int64_t>> first_of_ranks;
  std::set<std::int32_t> seen;
  for (const std::int64_t rank : {0, 1}) {
    const auto parts = source.batch(
        {.consumed_samples = 10, .global_batch = 12, .sizes = {1, 3, 2}, .rank = rank, .ranks = 2});
    ASSERT_EQ(parts.size(), 3U);
    first_of_ranks.emplace_back();
    for (std::size_t m = 0; m < parts.size(); ++m) {
      EXPECT_EQ(parts[m].samples, (std::vector<std::int64_t>{1, 3, 2})[m]);
      first_of_ranks.back().push_back(parts[m].sample_index);
      for (std::int64_t i = 0; i < parts[m].samples; ++i) {
        EXPECT_EQ(parts[m].tokens[static_cast<std::size_t>(4 * i)], 10 + parts[m].sample_index + i);
        seen.insert(parts[m].tokens[static_cast<std::size_t>(4 * i)]);
      }
    }
  }
  EXPECT_EQ(first_of_ranks[0], (std::vector<std::int64_t>{0, 2, 8}));
  EXPECT_EQ(first_of_ranks[1], (std::vector<std::int64_t>{1, 5, 10}));
  EXPECT_EQ(seen.size(), 12U);
}

TEST(BatchSource, CyclicReadsEverySampleOnceAnEpochInAnotherOrderEachTime) {
  BatchSource source(counting(50), {.order = DataloaderType::kCyclic});
  std::vector<std::vector<std::int32_t>> epochs(2);
  for (std::int64_t place = 0; place < 100; ++place) {
    epochs[static_cast<std::size_t>(place / 50)].push_back(
        source.batch({.consumed_samples = place}).at(0).tokens[0]);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs)
    EXPECT_EQ(std::set<std::int32_t>(epoch.begin(), epoch.end()).size(), 50U);
}

template <typename F>
std::string error_of(const F& act, Fault fault) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), fault);
    return error.what();
  }
  return "";
}

TEST(BatchSource, CyclicGoesRoundOneSampleAndNotRoundNone) {
  BatchSource one(counting(1), {.order = DataloaderType::kCyclic});
  EXPECT_EQ(one.batch({.consumed_samples = 7}).at(0).tokens[0], 0);
  BatchSource none(counting(0), {.order = DataloaderType::kCyclic});
  EXPECT_THAT(error_of([&] { none.batch({}); }, Fault::kData), HasSubstr("there are only 0"));
}

TEST(BatchSource, SaysWhichSampleHoldsAnIdThatIsTooLarge) {
  BatchSource source(counting(100), {.vocabulary = 20});
  source.batch({.consumed_samples = 15});
  EXPECT_THAT(error_of([&] { source.batch({.consumed_samples = 16}); }, Fault::kData),
              HasSubstr("sample 16 holds id 20, the vocabulary has 20"));
  EXPECT_THAT(
      error_of([&] { BatchSource(counting(9), {}).batch({.consumed_samples = 9}); }, Fault::kData),
      HasSubstr("a request for sample 9, but there are only 9"));
  EXPECT_THAT(error_of([] { counting(9, {.eod_mask_loss = true}); }, Fault::kUsage),
              HasSubstr("need an end-of-document id"));
}

TEST(DataSets, SplitBoundsRoundHalvesToEvenWithoutCorrection) {
  using Bounds = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(split_bounds("1,1,1", 307), (Bounds{{0, 102}, {102, 205}, {205, 307}}));
  EXPECT_EQ(split_bounds("969, 30, 1", 307), (Bounds{{0, 297}, {297, 307}, {307, 307}}));
  EXPECT_EQ(split_bounds("'969,30,1'", 307), (Bounds{{0, 297}, {297, 307}, {307, 307}}));
  EXPECT_EQ(split_bounds("1", 5), (Bounds{{0, 5}, {5, 5}, {5, 5}}));
  EXPECT_EQ(split_bounds("50,50,0", 5), (Bounds{{0, 2}, {2, 5}, {5, 5}}));
  for (const char* wrong : {"", "1,2,3,4", "a,b", "0,0,0", "-1,2,0", "1,,2", "nan,1,1"}) {
    EXPECT_THAT(error_of([&] { split_bounds(wrong, 10); }, Fault::kUsage),
                HasSubstr("--split: got"))
        << wrong;
  }
}

Documents tiny(int documents, int length) {
  Documents made;
  for (int i = 0; i < documents; ++i)
    made.push_back({std::vector<std::int32_t>(static_cast<std::size_t>(length), i)});
  return made;
}

TEST(DataSets, EveryTokenIsReadOnceAnEpoch) {
  TempFolder folder;
  Documents documents(10);
  std::int32_t next = 0;
  for (auto& document : documents) {
    document.resize(1);
    for (int i = 0; i < 3 + next % 5; ++i) document[0].push_back(next++);
  }
  write_corpus(folder / "x", IdType::kInt32, documents);
  GptDataset data(open_corpus(folder / "x", {}), {.first = 0, .end = 10, .sequence = 8});
  std::map<std::int32_t, int> inputs;
  std::vector<std::int32_t> ids(9);
  for (std::int64_t i = 0; i < data.size(); ++i) {
    data.read(i, ids);
    for (int j = 0; j < 8; ++j) ++inputs[ids[static_cast<std::size_t>(j)]];
  }
  EXPECT_EQ(data.size(), (next - 1) / 8);
  EXPECT_EQ(static_cast<std::int64_t>(inputs.size()), data.size() * 8);
  for (const auto& [id, count] : inputs) EXPECT_EQ(count, 1) << id;
}

TEST(DataSets, WarnOfASplitThatRoundsToNothingAndRefuseToReadIt) {
  struct Kept : Log {
    void write(LogLevel level, std::string_view line) override {
      if (level == LogLevel::kWarning) warnings += line;
    }
    std::string warnings;
  } log;
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, tiny(307, 20));
  DataOptions options;
  options.data_path = {folder / "x"};
  const DataSets sets = open_data_sets(options, {8, 1, {100, 10, 5}}, log);
  EXPECT_EQ(sets.test.at(0).source->size(), 0);
  EXPECT_THAT(log.warnings,
              HasSubstr("its share of the test set rounds to nothing (307 sequences)"));
  Sample sample;
  EXPECT_THAT(error_of([&] { sets.test.at(0).source->sample(0, sample); }, Fault::kData),
              HasSubstr("test set: empty"));
  options.split = "0.001,1,0";
  EXPECT_THAT(error_of(
                  [&] {
                    open_data_sets(options, {8, 1, {100, 10, 5}}, log);
                  },
                  Fault::kData),
              HasSubstr("training has nothing to read"));
}

// All inputs of a set's samples.
std::set<std::int32_t> tokens_of(const SampleSource& source) {
  std::set<std::int32_t> all;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const std::vector<std::int32_t> ids = ids_of(source, i);
    all.insert(ids.begin(), ids.end());
  }
  return all;
}

// `documents` documents with tokens 0, 1, 2, ... over all of them.
Documents numbered(int documents, int length) {
  Documents made;
  std::int32_t next = 0;
  for (int i = 0; i < documents; ++i) {
    made.push_back({{}});
    for (int j = 0; j < length; ++j) made.back()[0].push_back(next++);
  }
  return made;
}

TEST(DataSets, CutWithinDocumentsWhereThereAreFew) {
  struct Kept : Log {
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
    std::vector<std::string> lines;
  };
  for (const int documents : {1, 3}) {
    TempFolder folder;
    write_corpus(folder / "x", IdType::kInt32, numbered(documents, 900 / documents));
    DataOptions options;
    options.data_path = {folder / "x"};
    options.split = "90,10,0";
    Kept log;
    const DataSets sets = open_data_sets(options, {8, 1, {101, 11, 0}}, log);
    const auto train = tokens_of(*sets.train), valid = tokens_of(*sets.valid.at(0).source);
    // 100 samples of 8 tokens and one leave some of the 810 out, wherever the last document went.
    EXPECT_LT(*train.rbegin(), 810) << documents;
    EXPECT_GE(*train.rbegin(), 801) << documents;
    EXPECT_EQ(*valid.begin(), 810);
    EXPECT_EQ(*valid.rbegin(), 898);
    ASSERT_EQ(log.lines.size(), 1U);
    EXPECT_THAT(log.lines[0], HasSubstr("each set gets a stretch of its tokens, the first 810"));
    EXPECT_EQ(sets.tokens.at(0), 900);
  }
}

TEST(DataSets, LeaveDocumentsWholeWhereSharesHaveSomeOrThereAreMany) {
  for (const auto& [documents, split] :
       {std::pair(2, "50,50,0"), std::pair(33, "99,1,0"), std::pair(2, "100,0,0")}) {
    TempFolder folder;
    write_corpus(folder / "x", IdType::kInt32, numbered(documents, 40));
    DataOptions options;
    options.data_path = {folder / "x"};
    options.split = split;
    SilentLog log;
    const DataSets sets = open_data_sets(options, {8, 1, {4, 0, 0}}, log);
    const std::int32_t end = documents == 33 ? 33 * 40 : std::string(split) == "50,50,0" ? 40 : 80;
    EXPECT_LT(*tokens_of(*sets.train).rbegin(), end) << split;
    EXPECT_GE(*tokens_of(*sets.train).rbegin(), end - 9) << split;
  }
}

TEST(DataSets, TakeTheNameOfEitherFile) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, numbered(2, 40));
  for (const std::string ending : {".bin", ".idx", ""}) {
    DataOptions options;
    options.data_path = {folder / ("x" + ending)};
    options.split = "100,0,0";
    SilentLog log;
    EXPECT_EQ(open_data_sets(options, {8, 1, {4, 0, 0}}, log).prefixes.at(0), folder / "x");
  }
}

TEST(DataSets, WeightedSplitPathsReadTheirRangesAlone) {
  TempFolder folder;
  const std::string x = folder / "x";
  write_corpus(x, IdType::kInt32, tiny(100, 20));
  SilentLog log;
  DataOptions options;
  options.train_weighted_split_paths = {"TRAIN: 1 0:0.5 " + x + ", 3 0.9:1 " + x};
  options.valid_weighted_split_paths = {"A: 1 0.5:0.7 " + x, "B: 1 0.7:0.9 " + x};
  const DataSets sets = open_data_sets(options, {10, 1, {200, 20, 0}}, log);
  int late = 0;
  for (std::int64_t i = 0; i < sets.train->size(); ++i) {
    const auto ids = ids_of(*sets.train, i);
    EXPECT_TRUE(ids[0] < 50 || ids[0] >= 90) << ids[0];
    late += ids[0] >= 90;
  }
  EXPECT_EQ(late, 150);
  ASSERT_EQ(sets.valid.size(), 2U);
  EXPECT_EQ(sets.valid[1].name, "B");
  for (std::int64_t i = 0; i < sets.valid[1].source->size(); ++i) {
    const auto ids = ids_of(*sets.valid[1].source, i);
    EXPECT_TRUE(ids[0] >= 70 && ids[0] < 90) << ids[0];
  }
  for (const char* wrong :
       {"T 1 0:1 x", "T: 1 x", "T: -1 0:1 x", "T: 1 0:2 x", "T: 1 0.5:0.5 x", ": 1 0:1 x"}) {
    options.train_weighted_split_paths = {wrong};
    EXPECT_THAT(error_of(
                    [&] {
                      open_data_sets(options, {10, 1, {1, 1, 1}}, log);
                    },
                    Fault::kUsage),
                HasSubstr("--train-weighted-split-paths"))
        << wrong;
  }
}

TEST(DataSets, RefuseListsThatAreNeitherPrefixesNorWeightsAndPrefixes) {
  SilentLog log;
  DataOptions options;
  options.data_path = {"0.3", "a", "0.7"};
  EXPECT_THAT(error_of(
                  [&] {
                    open_data_sets(options, {10, 1, {1, 1, 1}}, log);
                  },
                  Fault::kUsage),
              HasSubstr("--data-path: got 3 words with the number 0.3 among them"));
  options.data_path = {"0", "a", "1", "b"};
  EXPECT_THAT(error_of(
                  [&] {
                    open_data_sets(options, {10, 1, {1, 1, 1}}, log);
                  },
                  Fault::kUsage),
              HasSubstr("weight of a: got 0, wanted a number above 0"));
  for (auto path :
       {&DataOptions::train_data_path, &DataOptions::valid_data_path, &DataOptions::test_data_path,
        &DataOptions::train_weighted_split_paths, &DataOptions::valid_weighted_split_paths,
        &DataOptions::test_weighted_split_paths}) {
    DataOptions both = options;
    both.*path = {"c"};
    EXPECT_THAT(error_of(
                    [&] {
                      open_data_sets(both, {10, 1, {1, 1, 1}}, log);
                    },
                    Fault::kUsage),
                HasSubstr("use one way to name corpora"));
  }
}

TEST(DataSets, ExactEpochsReadTheCorpusSoManyTimes) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, tiny(10, 20));
  SilentLog log;
  DataOptions options;
  options.data_path = {folder / "x"};
  options.split = "1,0,0";
  options.train_data_exact_num_epochs = 3;
  EXPECT_EQ(open_data_sets(options, {10, 1, {5, 0, 0}}, log).train->size(), (3 * 200 - 1) / 10);
}

TEST(IndexCache, ADamagedFileIsBuiltAgainOrRefusedButNeverRead) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, tiny(50, 20));
  const auto corpus = open_corpus(folder / "x", folder.path() / "cache");
  const GptRequest request{.first = 0, .end = 50, .sequence = 8, .samples = 100};
  const auto row = [&] {
    std::vector<std::int32_t> ids(9);
    GptDataset(corpus, request, folder.path() / "cache").read(7, ids);
    return ids;
  };
  const auto whole = row();
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "cache")) {
    if (entry.path().extension() == ".samples") file = entry.path();
  }
  ASSERT_FALSE(file.empty());
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 4);
  EXPECT_EQ(row(), whole);
  // Every byte of the lists set to 0xFF.
  std::string text(std::filesystem::file_size(file) - 112, '\xFF');
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(112)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
  EXPECT_THAT(error_of([&] { row(); }, Fault::kData), HasSubstr("remove the cache folder"));
}

// A mapping would end the process by SIGBUS.
TEST(IndexCache, AFileThatIsCutWhileItsSamplesAreReadIsAnErrorThatNamesItAndIsBuiltAgain) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, tiny(500, 20));
  const auto cache = folder.path() / "cache";
  const auto corpus = open_corpus(folder / "x", cache);
  const GptRequest request{.first = 0, .end = 500, .sequence = 8, .samples = 3000};
  const GptDataset data(corpus, request, cache);
  std::vector<std::int32_t> whole(9);
  data.read(7, whole);
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    if (entry.path().extension() == ".samples") file = entry.path();
  }
  ASSERT_FALSE(file.empty());
  std::vector<std::int32_t> ids(9);
  for (const std::uintmax_t bytes : {std::filesystem::file_size(file) / 2, std::uintmax_t{0}}) {
    std::filesystem::resize_file(file, bytes);
    const auto read_all = [&] {
      for (std::int64_t i = 0; i < data.size(); ++i) data.read(i, ids);
    };
    EXPECT_THAT(error_of(read_all, Fault::kData),
                AllOf(HasSubstr(file.string()), HasSubstr("cut short while it was in use")));
  }
  GptDataset(corpus, request, cache).read(7, ids);
  EXPECT_EQ(ids, whole);
}

}  // namespace
}  // namespace piton
