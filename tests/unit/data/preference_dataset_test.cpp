#include "data/samples/preference_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Rows = std::vector<std::vector<std::int32_t>>;

constexpr std::int32_t N = kNoLabel;

class PreferenceFolder {
 public:
  void write(const std::string& column, const Rows& rows) {
    IndexedWriter writer(prefix() + "_packed_" + column + "_document", IdType::kInt32);
    for (const auto& row : rows) {
      writer.add_sequence(row);
      writer.end_document();
    }
    writer.finish();
  }
  // Two pairs, of 2 + 3 and 3 + 1 tokens.
  void write_pairs() {
    write("chosen_input_ids", {{1, 2, 3}, {4, 5, 6, 7}});
    write("chosen_labels", {{N, 2, 3}, {N, N, 6, 7}});
    write("rejected_input_ids", {{1, 8, 9, 10}, {4, 11}});
    write("rejected_labels", {{N, 8, 9, 10}, {N, 11}});
  }
  void write_judged() {
    write("input_ids", {{1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
    write("labels", {{N, 2, 3}, {N, N, 6, 7}, {N, 9}});
    write("desirable", {{1}, {0}, {1}});
  }
  std::shared_ptr<const SampleSource> open(std::int64_t sequence = 8, bool pack = false,
                                           bool for_rewards = false) {
    DataOptions options;
    options.is_instruction_dataset = options.is_pairwise_dataset = options.no_shuffle = true;
    options.pack = pack;
    options.data_path = {prefix()};
    options.split = "1,0,0";
    return open_data_sets(
               options, {.sequence = sequence, .counts = {.train = 1}, .for_rewards = for_rewards},
               log_)
        .train;
  }
  const std::string& warning() const { return log_.last; }
  std::string prefix() const { return (folder_ / "pairs").string(); }

 private:
  struct LastWarning final : Log {
    void write(LogLevel level, std::string_view line) override {
      if (level == LogLevel::kWarning) last = line;
    }
    std::string last;
  };
  TempFolder folder_;
  LastWarning log_;
};

TEST(PreferenceDataset, ARowHasBothAnswersOfAPair) {
  PreferenceFolder folder;
  folder.write_pairs();
  const auto source = folder.open();
  ASSERT_EQ(source->size(), 2);
  Sample sample;
  source->sample(0, sample);
  EXPECT_THAT(sample.tokens, ElementsAre(1, 2, 1, 8, 9, 0, 0, 0));
  EXPECT_THAT(sample.labels, ElementsAre(2, 3, 8, 9, 10, N, N, N));
  EXPECT_THAT(sample.positions, ElementsAre(0, 1, 0, 1, 2, 0, 1, 2));
  EXPECT_THAT(sample.segments, ElementsAre(0, 0, 1, 1, 1, -1, -1, -1));
  EXPECT_EQ(sample.length, 5);
  EXPECT_THAT(sample.answers,
              ElementsAre(Answer{AnswerRole::kChosen, 0, 2}, Answer{AnswerRole::kRejected, 2, 5}));
  EXPECT_EQ(source->longest(1), 4);
}

TEST(PreferenceDataset, AJudgedAnswerIsFollowedByItsQuestionWithTheNextAnswer) {
  PreferenceFolder folder;
  folder.write_judged();
  const auto source = folder.open();
  Sample sample;
  source->sample(1, sample);
  EXPECT_THAT(sample.tokens, ElementsAre(4, 5, 6, 4, 5, 0, 0, 0));
  EXPECT_THAT(sample.labels, ElementsAre(N, 6, 7, N, 9, N, N, N));
  EXPECT_THAT(sample.answers, ElementsAre(Answer{AnswerRole::kUndesirable, 0, 3},
                                          Answer{AnswerRole::kMismatched, 3, 5}));
  source->sample(2, sample);  // the last one: the first of the split follows
  EXPECT_THAT(sample.tokens, ElementsAre(8, 8, 2, 0, 0, 0, 0, 0));
  EXPECT_EQ(sample.answers[0].role, AnswerRole::kDesirable);
}

TEST(PreferenceDataset, PackedRowsAndBatchesKeepTheAnswers) {
  PreferenceFolder folder;
  folder.write_pairs();
  const auto source = folder.open(12, /*pack=*/true);
  ASSERT_EQ(source->size(), 1);
  const std::vector<MicroBatch> batches = BatchSource(source, {}).batch({});
  const MicroBatch& batch = batches.at(0);
  EXPECT_THAT(batch.tokens, ElementsAre(1, 2, 1, 8, 9, 4, 5, 6, 4, 0, 0, 0));
  EXPECT_THAT(batch.segments, ElementsAre(0, 0, 1, 1, 1, 2, 2, 2, 3, -1, -1, -1));
  EXPECT_THAT(batch.answers,
              ElementsAre(Answer{AnswerRole::kChosen, 0, 2}, Answer{AnswerRole::kRejected, 2, 5},
                          Answer{AnswerRole::kChosen, 5, 8}, Answer{AnswerRole::kRejected, 8, 9}));
  const auto rows = folder.open(8);
  const MicroBatch two = BatchSource(rows, {}).batch({.global_batch = 2, .micro_batch = 2}).at(0);
  EXPECT_EQ(two.answers.at(2), (Answer{AnswerRole::kChosen, 8, 11}));
}

TEST(PreferenceDataset, RewardsAreReadAtTheLastIdOfEachText) {
  PreferenceFolder folder;
  folder.write_pairs();
  const auto source = folder.open(8, /*pack=*/false, /*for_rewards=*/true);
  Sample sample;
  source->sample(0, sample);
  EXPECT_THAT(sample.tokens, ElementsAre(1, 2, 3, 1, 8, 9, 10, 0));
  EXPECT_THAT(sample.labels, ElementsAre(2, 3, N, 8, 9, 10, N, N));
  EXPECT_THAT(sample.answers,
              ElementsAre(Answer{AnswerRole::kChosen, 0, 3}, Answer{AnswerRole::kRejected, 3, 7}));
  EXPECT_EQ(source->longest(0), 7);
}

// LlamaFactory's infer_seqlen(2, 9, 6) = (2, 4), (9, 2, 6) = (4, 2), (9, 9, 6) = (3, 3).
TEST(PreferenceDataset, TextsThatDoNotFitAreCutByTheirQuestionsAndAnswers) {
  const auto row = [](std::int32_t first, std::int64_t count) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + static_cast<std::int32_t>(i));
    return ids;
  };
  const auto text = [&](std::int64_t question, std::int32_t answer, std::int64_t count) {
    std::vector<std::int32_t> ids = row(10, question);
    for (const std::int32_t id : row(answer, count)) ids.push_back(id);
    return ids;
  };
  const auto labels = [&](std::int64_t question, std::int32_t answer, std::int64_t count) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(question), N);
    for (const std::int32_t id : row(answer, count)) ids.push_back(id);
    return ids;
  };
  PreferenceFolder folder;
  folder.write("chosen_input_ids",
               {text(2, 30, 9), text(9, 30, 2), text(9, 30, 9), text(2, 30, 2)});
  folder.write("chosen_labels",
               {labels(2, 30, 9), labels(9, 30, 2), labels(9, 30, 9), labels(2, 30, 2)});
  folder.write("rejected_input_ids",
               {text(2, 50, 3), text(9, 50, 1), text(9, 50, 9), text(2, 50, 3)});
  folder.write("rejected_labels",
               {labels(2, 50, 3), labels(9, 50, 1), labels(9, 50, 9), labels(2, 50, 3)});
  const auto source = folder.open(10);
  EXPECT_THAT(folder.warning(), HasSubstr("train set: 3 samples are longer than --seq-length 10 "
                                          "and are cut, the first is sample 0"));
  const std::vector<Rows> wanted{{{10, 11, 30, 31, 32}, {10, 11, 50, 51}},
                                 {{10, 11, 12, 13, 30}, {10, 11, 12, 13}},
                                 {{10, 11, 12, 30, 31}, {10, 11, 12, 50, 51}},
                                 {{10, 11, 30}, {10, 11, 50, 51}}};
  for (std::int64_t index = 0; index < 4; ++index) {
    Sample sample;
    source->sample(index, sample);
    for (std::size_t side = 0; side < 2; ++side) {
      const Answer& answer = sample.answers[side];
      EXPECT_EQ(
          std::vector(sample.tokens.begin() + answer.begin, sample.tokens.begin() + answer.end),
          wanted[static_cast<std::size_t>(index)][side])
          << index;
      EXPECT_GE(sample.labels[static_cast<std::size_t>(answer.end - 1)], 30);
      EXPECT_EQ(sample.labels[static_cast<std::size_t>(answer.begin)], N);
    }
    EXPECT_EQ(source->longest(index), sample.length);
  }
}

TEST(PreferenceDataset, FourTokensHaveAQuestionAndAnAnswerOfBothTexts) {
  PreferenceFolder folder;
  folder.write_pairs();
  const auto source = folder.open(4);
  Sample sample;
  source->sample(0, sample);
  EXPECT_THAT(sample.tokens, ElementsAre(1, 2, 1, 8));
  EXPECT_THAT(sample.labels, ElementsAre(2, 3, 8, 9));
}

TEST(PreferenceDataset, RefusesWhatIsNoPreference) {
  PreferenceFolder folder;
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open(); }),
              HasSubstr("_packed_chosen_input_ids_document.idx: does not exist; preferences are "));
  folder.write_pairs();
  EXPECT_THAT(
      message_of(Fault::kData, [&] { folder.open(3); }),
      HasSubstr("sample 0: its two texts do not fit into --seq-length 3, wanted at least 4"));
  folder.write("rejected_input_ids", {{1, 8, 9, 10}, {4, 5, 6, 7}});
  folder.write("rejected_labels", {{N, 8, 9, 10}, {N, N, 6, 7}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open(); }),
              HasSubstr("sample 1: chosen and rejected are equal"));
  folder.write("chosen_labels", {{N, N, N}, {N, N, 6, 7}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open(); }),
              HasSubstr("sample 0: an answer is empty: none of its 3 ids has a label"));
  folder.write("chosen_labels", {{N, 2}, {N, N, 6, 7}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open(); }),
              HasSubstr("sample 0 has 2 values, but "));
  folder.write("chosen_labels", {{N, 2, 3}});
  EXPECT_THAT(message_of(Fault::kData, [&] { folder.open(); }), HasSubstr("belong together"));
  PreferenceFolder judged;
  judged.write_judged();
  judged.write("desirable", {{1}, {2}, {1}});
  EXPECT_THAT(message_of(Fault::kData, [&] { judged.open(); }),
              HasSubstr("sample 1: wanted one value, 0 or 1"));
}

}  // namespace
}  // namespace piton
