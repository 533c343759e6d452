// Instruction data equals a plain Python reading of the same files; the first lines of
// tests/golden/instruction_samples.txt say how it was made.
#include "data/samples/instruction_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kInstructionGolden = PITON_SOURCE_DIR "/tests/golden/";
using IdRow = std::vector<std::int32_t>;

IdRow ids_in(const std::string& line) {
  std::istringstream words(line);
  IdRow values;
  for (std::int32_t value; words >> value;) values.push_back(value);
  return values;
}

DataSets open_golden(const std::string& case_line, Log& log) {
  std::istringstream words(case_line.substr(case_line.find(' ')));
  DataOptions options;
  options.is_instruction_dataset = true;
  SampleSettings settings{.documents = {.eod = 2, .pad = 1}};
  std::string word;
  words >> word;
  options.data_path = {kInstructionGolden + "instruction/" + word};
  const std::map<std::string, bool DataOptions::*> flags = {
      {"no-shuffle", &DataOptions::no_shuffle},
      {"full-shuffle-instruction-dataset", &DataOptions::full_shuffle_instruction_dataset},
      {"padded-samples", &DataOptions::padded_samples},
      {"reset-position-ids", &DataOptions::reset_position_ids},
      {"neat-pack", &DataOptions::neat_pack},
      {"pack", &DataOptions::pack}};
  while (words >> word && word != "|") options.*flags.at(word) = true;
  words >> options.split >> word >> settings.sequence >> word >> settings.seed >> word >>
      settings.global_batch >> word >> settings.counts.train >> settings.counts.valid;
  return open_data_sets(options, settings, log);
}

TEST(InstructionDataset, EqualsAPlainReadingInOrderMasksPositionsAndPacking) {
  std::ifstream file(kInstructionGolden + "instruction_samples.txt");
  DataSets sets;
  SilentLog log;
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    if (line.starts_with("case ")) {
      sets = open_golden(line, log);
      ++cases;
      continue;
    }
    std::istringstream words(line);
    std::string word, name;
    std::int64_t size = 0;
    words >> word >> name >> size;
    ASSERT_EQ(word, "set");
    const auto& source = *(name == "train" ? sets.train : sets.valid.at(0).source);
    ASSERT_EQ(source.size(), size);
    Sample sample;
    for (std::int64_t i = 0; i < size; ++i) {
      std::array<std::string, 5> rows;
      for (std::string& row : rows) std::getline(file, row);
      source.sample(i, sample);
      SCOPED_TRACE(fmt::format("case {}, {} set, sample {}", cases, name, i));
      ASSERT_EQ(sample.length, std::stoll(rows[0]));
      ASSERT_EQ(sample.tokens, ids_in(rows[1]));
      ASSERT_EQ(sample.labels, ids_in(rows[2]));
      ASSERT_EQ(sample.positions, ids_in(rows[3]));
      ASSERT_EQ(sample.segments, rows[4] == "-" ? IdRow{} : ids_in(rows[4]));
    }
  }
  EXPECT_EQ(cases, 10);
}

// Samples of ids, mask, labels.
using Three = std::array<std::vector<IdRow>, 3>;

class InstructionFilesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const Three& three) {
    const std::string prefix = (folder_ / name).string();
    for (std::size_t i = 0; i < 3; ++i) {
      Documents documents;
      for (const IdRow& ids : three[i]) documents.push_back({ids});
      write_corpus(InstructionFiles::prefixes(prefix)[i], IdType::kInt32, documents);
    }
    return prefix;
  }
  // `count` samples of `length` ids from `first` on; the last half of each is learned.
  Three counted(std::int32_t first, std::int32_t count, std::int32_t length) {
    Three three;
    for (std::int32_t i = 0; i < count; ++i) {
      IdRow ids(static_cast<std::size_t>(length), first + i);
      IdRow labels = ids;
      std::fill_n(labels.begin(), length / 2, kNoLabel);
      three[0].push_back(ids);
      three[1].emplace_back(ids.size(), 1);
      three[2].push_back(labels);
    }
    return three;
  }
  DataSets open(const std::vector<std::string>& prefixes, SampleCounts counts = {8, 0, 0}) {
    options_.is_instruction_dataset = true;
    options_.data_path = prefixes;
    return open_data_sets(options_, {.sequence = 8, .seed = 3, .counts = counts, .global_batch = 4},
                          log_);
  }
  Sample first_of(const std::string& prefix) {
    options_.no_shuffle = true;
    options_.split = "1,0,0";
    Sample sample;
    open({prefix}).train->sample(0, sample);
    return sample;
  }
  std::string error_of(const std::string& prefix) {
    return message_of(Fault::kData, [&] { first_of(prefix); });
  }

  struct Kept : Log {
    void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
    std::vector<std::string> lines;
  };
  TempFolder folder_;
  DataOptions options_;
  Kept log_;
};

TEST_F(InstructionFilesTest, BlendsByWeightAndSplitsInSamples) {
  const std::string a = write("a", counted(100, 50, 6)), b = write("b", counted(300, 20, 6));
  options_.split = "80,20,0";
  const DataSets sets = open({"0.75", a, "0.25", b}, {100, 8, 0});
  ASSERT_EQ(sets.train->size(), 100);
  std::map<std::int32_t, int> seen;
  Sample sample;
  for (std::int64_t i = 0; i < 100; ++i) {
    sets.train->sample(i, sample);
    ++seen[sample.tokens[0]];
  }
  int of_a = 0;
  for (const auto& [id, count] : seen) {
    of_a += id < 300 ? count : 0;
    EXPECT_TRUE(id < 140 || (id >= 300 && id < 316)) << id << " is not in the training split";
  }
  EXPECT_EQ(of_a, 75);
  sets.valid.at(0).source->sample(0, sample);
  EXPECT_TRUE((sample.tokens[0] >= 140 && sample.tokens[0] < 150) || sample.tokens[0] >= 316);
  EXPECT_EQ(sets.corpora.size(), 6U) << "three of each prefix are watched for changes";
  EXPECT_EQ(sets.prefixes.size(), 2U);
}

TEST_F(InstructionFilesTest, AnEpochTakesEverySampleOnce) {
  options_.split = "1,0,0";
  const DataSets sets = open({write("a", counted(0, 30, 5))}, {75, 0, 0});
  ASSERT_EQ(sets.train->size(), 90);
  std::array<std::vector<std::int32_t>, 3> epochs;
  Sample sample;
  for (std::size_t i = 0; i < 90; ++i) {
    sets.train->sample(static_cast<std::int64_t>(i), sample);
    epochs[i / 30].push_back(sample.tokens[0]);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<std::int32_t>(epoch.begin(), epoch.end()).size(), 30U);
  }
}

TEST_F(InstructionFilesTest, SayHowManySamplesAreCutAndHowMuchIsPadding) {
  options_.split = "1,0,0";
  Three three = counted(0, 3, 5);
  const Three longer = counted(3, 1, 12);
  for (std::size_t i = 0; i < 3; ++i) three[i].push_back(longer[i][0]);
  const std::string prefix = write("a", three);
  open({prefix}, {4, 0, 0});
  options_.pack = true;
  open({prefix}, {1, 0, 0});
  EXPECT_THAT(
      log_.lines,
      ElementsAre(prefix + ": train set: 4 samples padded to 8 tokens, 1 of them longer than 8 "
                           "tokens and cut, padding wasted 37.5 %",
                  prefix + ": train set: 4 samples packed into 3 rows of 8 tokens an epoch, 1 of "
                           "them longer than 8 tokens and cut, padding wasted 16.7 %"));
}

// A question as long as the window leaves nothing of its answer to learn.
TEST_F(InstructionFilesTest, LeaveOutSamplesThatAreCutBeforeTheirFirstLabel) {
  options_.split = "1,0,0";
  Three three = counted(0, 6, 5);
  const Three longer = counted(6, 2, 18);  // labels from place 9: the first is cut, as s is 8
  const Three just_enough = counted(8, 1, 16);
  for (std::size_t i = 0; i < 3; ++i) {
    three[i].insert(three[i].begin() + 2, longer[i][0]);
    three[i].push_back(longer[i][1]);
    three[i].push_back(just_enough[i][0]);
  }
  const std::string prefix = write("a", three);
  for (const bool pack : {false, true}) {
    options_.pack = pack;
    const DataSets sets = open({prefix}, {14, 0, 0});
    std::set<std::int32_t> seen;
    Sample sample;
    for (std::int64_t i = 0; i < sets.train->size(); ++i) {
      sets.train->sample(i, sample);
      seen.insert(sample.tokens.begin(), sample.tokens.end());
      EXPECT_TRUE(std::any_of(sample.labels.begin(), sample.labels.end(),
                              [](std::int32_t label) { return label != kNoLabel; }))
          << "sample " << i;
    }
    EXPECT_EQ(seen, (std::set<std::int32_t>{0, 1, 2, 3, 4, 5, 8}));
    EXPECT_EQ(log_.lines.at(pack ? 2 : 0),
              prefix +
                  ": train set: 2 of 9 samples have no label within --seq-length 8 and are "
                  "left out, the first is sample 2");
  }
  EXPECT_THAT(message_of(Fault::kUsage, [&] { open({write("b", counted(0, 2, 30))}); }),
              HasSubstr("none of the 2 samples has a label within --seq-length 8"));
}

TEST_F(InstructionFilesTest, PaddingOfTheFilesIsSeenByNobodyAndTeachesNothing) {
  const Sample sample = first_of(
      write("a", {{{{5, 6, 7, 8, 9, 9, 9}}, {{0, 0, 1, 1, 1, 0, 0}}, {{5, 6, 7, 8, 9, 9, 9}}}}));
  EXPECT_EQ(sample.segments, (IdRow{-1, -1, 0, 0, 0, -1, -1, -1}));
  EXPECT_EQ(sample.labels, (IdRow{-100, -100, 8, 9, -100, -100, -100, -100}));
  EXPECT_EQ(sample.length, 5);
}

// Rows that were packed without the numbers of their texts: 2 ends a text. Those of --neat-pack and
// of --pack are divided anyway.
TEST_F(InstructionFilesTest, ResetMasksAtTheEndsOfTextsOfARow) {
  const auto first = [&](const IdRow& mask) {
    const IdRow ids = {5, 6, 2, 8, 2, 9, 9};
    options_.is_instruction_dataset = options_.reset_attention_mask = options_.no_shuffle = true;
    options_.split = "1,0,0";
    options_.data_path = {write("a", {{{ids}, {mask}, {ids}}})};
    Sample sample;
    open_data_sets(options_,
                   {.sequence = 8, .seed = 3, .counts = {1, 0, 0}, .documents = {.eod = 2}}, log_)
        .train->sample(0, sample);
    return sample;
  };
  const Sample divided = first({1, 1, 1, 1, 1, 1, 0});
  EXPECT_EQ(divided.segments, (IdRow{0, 0, 0, 1, 1, 2, -1, -1}));
  EXPECT_EQ(divided.positions, (IdRow{0, 1, 2, 0, 1, 0, 0, 1}));
  EXPECT_EQ(divided.labels, (IdRow{6, 2, 8, 2, 9, -100, -100, -100}));
  options_.neat_pack = true;
  EXPECT_EQ(first({1, 1, 1, 1, 1, 2, 2}).segments, (IdRow{0, 0, 0, 0, 0, 1, -1, -1}));
  options_.neat_pack = false;
  options_.pack = true;
  EXPECT_EQ(first({1, 1, 1, 1, 1, 1, 1}).segments, (IdRow{0, 0, 0, 0, 0, 0, -1, -1}));
}

TEST_F(InstructionFilesTest, RefuseFilesThatDoNotBelongTogetherWithOneLine) {
  Three fewer = counted(0, 4, 5);
  fewer[2].pop_back();
  const std::string a = write("a", fewer);
  EXPECT_THAT(error_of(a), AllOf(HasSubstr(a + "_packed_labels_document: 3 samples, but"),
                                 HasSubstr("_packed_input_ids_document has 4")));
  Three shorter = counted(0, 4, 5);
  shorter[1][2].pop_back();
  const std::string b = write("b", shorter);
  EXPECT_THAT(error_of(b),
              HasSubstr(b + "_packed_attention_mask_document: sample 2 has 4 values, but"));
  const std::string c = write("c", counted(0, 4, 1));
  EXPECT_THAT(error_of(c), HasSubstr("sample 0 has 1 ids, wanted at least 2"));
  const std::string d = write("d", counted(0, 4, 5));
  std::filesystem::remove(d + "_packed_labels_document.idx");
  EXPECT_THAT(error_of(d),
              HasSubstr(d + "_packed_labels_document.idx: does not exist; --is-instr"));
  const std::string e = write("e", counted(0, 4, 5));
  std::filesystem::resize_file(e + "_packed_labels_document.bin", 40);
  EXPECT_THAT(error_of(e), HasSubstr(e + "_packed_labels_document.bin"));
}

TEST_F(InstructionFilesTest, RefuseMasksThatTheOptionsDoNotExplain) {
  const IdRow ids = {5, 6, 7, 8, 9};
  const auto error = [&](const IdRow& mask) {
    return error_of(write("x", {{{ids}, {mask}, {ids}}}));
  };
  EXPECT_THAT(error({1, 1, 2, 2, 2}), HasSubstr("sample 0, place 2: got 2, wanted 0 or 1; if texts "
                                                "were packed with their numbers, set --neat-pack"));
  options_.neat_pack = true;
  EXPECT_NO_THROW(first_of(write("x", {{{ids}, {{1, 1, 2, 2, 0}}, {ids}}})));
  EXPECT_THAT(error({1, 1, 3, 3, 3}), HasSubstr("place 2: got 3, wanted 1, 2, or 0 for padding"));
  EXPECT_THAT(error({1, 2, 2, 1, 1}), HasSubstr("place 3: got 1, wanted 2, 3, or 0"));
  EXPECT_THAT(error({1, 0, 2, 2, 2}), HasSubstr("place 2: got 2, wanted 0, as padding has begun"));
  EXPECT_THAT(error({2, 2, 2, 2, 2}), HasSubstr("place 0: got 2, wanted 1"));
}

TEST_F(InstructionFilesTest, RefuseOptionsThatContradictThem) {
  const std::string a = write("a", counted(0, 4, 5));
  const auto error = [&](const DataOptions& options) {
    return message_of(Fault::kUsage, [&] {
      open_data_sets(options, {.sequence = 8, .seed = 3, .counts = {4, 0, 0}}, log_);
    });
  };
  for (const auto flag : {&DataOptions::pack, &DataOptions::neat_pack, &DataOptions::no_shuffle,
                          &DataOptions::full_shuffle_instruction_dataset,
                          &DataOptions::padded_samples, &DataOptions::variable_seq_lengths}) {
    DataOptions options;
    options.data_path = {a};
    options.*flag = true;
    EXPECT_THAT(error(options), HasSubstr("is for --is-instruction-dataset"));
  }
  for (const auto flag : {&DataOptions::mock_data, &DataOptions::eod_mask_loss}) {
    DataOptions options;
    options.is_instruction_dataset = true;
    options.*flag = true;
    EXPECT_THAT(error(options), HasSubstr("is for corpora of running text"));
  }
  DataOptions options;
  options.is_instruction_dataset = true;
  options.data_path = {a};
  options.reset_attention_mask = true;
  EXPECT_THAT(error(options), HasSubstr("--reset-attention-mask: needs an end-of-document id"));
  options.reset_position_ids = true;
  EXPECT_THAT(error(options), HasSubstr("--reset-position-ids: needs an end-of-document id"));
  options.is_pairwise_dataset = true;
  EXPECT_THAT(error(options), HasSubstr("--reset-attention-mask: answers of preferences do not"));
}

TEST_F(InstructionFilesTest, RowsOfAVariableLengthAgreeOnAllRanksAndEqualThePaddedOnes) {
  Three three;
  for (std::int32_t i = 0; i < 24; ++i) {
    const Three one = counted(i, 1, 2 + i % 5);
    for (std::size_t part = 0; part < 3; ++part) three[part].push_back(one[part][0]);
  }
  options_.split = "1,0,0";
  options_.no_shuffle = true;
  const auto samples = open({write("a", three)}, {24, 0, 0}).train;
  BatchSource whole(samples, {}), variable(samples, {.length_multiple = 2});
  std::set<std::int64_t> lengths;
  for (std::int64_t consumed = 0; consumed < 24; consumed += 4) {
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const BatchPlace place{.consumed_samples = consumed,
                             .global_batch = 4,
                             .micro_batch = 1,
                             .rank = rank,
                             .ranks = 2};
      const auto padded = whole.batch(place), rows = variable.batch(place);
      for (std::size_t m = 0; m < rows.size(); ++m) {
        const MicroBatch& row = rows[m];
        std::int64_t longest = 0;
        for (std::int64_t i = consumed; i < consumed + 4; ++i) {
          longest = std::max(longest, samples->longest(i));
        }
        EXPECT_EQ(row.sequence, (longest + 1) / 2 * 2);
        lengths.insert(row.sequence);
        const auto cut = [&](auto values) {
          values.resize(static_cast<std::size_t>(row.sequence));
          return values;
        };
        EXPECT_EQ(row.tokens, cut(padded[m].tokens));
        EXPECT_EQ(row.labels, cut(padded[m].labels));
        EXPECT_EQ(row.positions, cut(padded[m].positions));
        EXPECT_EQ(row.loss_tokens(), padded[m].loss_tokens());
      }
    }
  }
  EXPECT_THAT(lengths, ElementsAre(4, 6)) << "a global batch decides, and they differ";
}

}  // namespace
}  // namespace piton
