#include "parallel/pipeline_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/errors.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PipelineOptions parsed(const std::vector<std::string>& words) {
  PipelineOptions options;
  OptionSet set;
  set.add("pipeline", options);
  set.parse(words);
  return options;
}

std::string refusal(const std::vector<std::string>& words, int stages, std::int64_t layers) {
  return message_of(Fault::kUsage,
                    [&] { static_cast<void>(parsed(words).settings(stages, layers)); });
}

constexpr const char* kChunkLayers = "--num-layers-per-virtual-pipeline-stage";
constexpr const char* kChunks = "--num-virtual-stages-per-pipeline-rank";

TEST(PipelineOptions, AskFor1F1BUnlessTheyAskForChunks) {
  EXPECT_EQ(parsed({}).settings(4, 8).kind, ScheduleKind::kOneForwardOneBackward);
  EXPECT_EQ(parsed({kChunkLayers, "2"}).settings(4, 8).kind, ScheduleKind::kOneForwardOneBackward)
      << "one chunk a stage";
  const ScheduleSettings two = parsed({kChunkLayers, "1"}).settings(4, 8);
  EXPECT_EQ(two.kind, ScheduleKind::kInterleaved);
  EXPECT_EQ(two.chunks, 2);
  EXPECT_EQ(two.group, 0);
  const ScheduleSettings three =
      parsed({kChunks, "3", "--microbatch-group-size-per-virtual-pipeline-stage", "5"})
          .settings(2, 8);
  EXPECT_EQ(three.chunks, 3);
  EXPECT_EQ(three.group, 5);
  EXPECT_EQ(parsed({"--pipeline-schedule", "zb-v"}).settings(2, 8).kind,
            ScheduleKind::kZeroBubbleV);
}

TEST(PipelineOptions, KnowFold3DByBothSpellings) {
  for (const char* flag : {"--foldx-mode", "--fold-mode"}) {
    EXPECT_EQ(parsed({flag, "aiao", kChunkLayers, "1"}).settings(2, 4).kind,
              ScheduleKind::kAllInAllOut);
    EXPECT_EQ(parsed({flag, "fifo", kChunkLayers, "1"}).settings(2, 4).kind,
              ScheduleKind::kInterleaved);
  }
}

TEST(PipelineOptions, KnowEveryOrderByName) {
  const auto settings = [](const std::string& name, std::vector<std::string> words) {
    words.insert(words.end(), {"--pipeline-schedule", name});
    return parsed(words).settings(2, 4);
  };
  EXPECT_EQ(settings("interleaved", {kChunks, "2"}).kind, ScheduleKind::kInterleaved);
  EXPECT_EQ(settings("fifo", {kChunkLayers, "1"}).kind, ScheduleKind::kInterleaved);
  EXPECT_EQ(settings("fifo", {kChunkLayers, "1", "--foldx-mode", "fifo"}).chunks, 2);
  EXPECT_EQ(settings("aiao", {kChunks, "2"}).kind, ScheduleKind::kAllInAllOut);
  EXPECT_EQ(settings("opp", {}).kind, ScheduleKind::kOneForwardOneBackward);
  for (const char* name : {"interleaved", "aiao", "fifo"}) {
    EXPECT_THAT(refusal({"--pipeline-schedule", name}, 2, 4),
                HasSubstr("--pipeline-schedule: needs several chunks a stage"));
  }
  EXPECT_THAT(
      refusal({"--pipeline-schedule", "interleaved", "--foldx-mode", "aiao", kChunks, "2"}, 2, 4),
      HasSubstr("--foldx-mode: aiao is another order than that of --pipeline-schedule"));
  EXPECT_THAT(refusal({"--pipeline-schedule", "opp"}, 1, 4),
              HasSubstr("--pipeline-schedule opp: needs --pipeline-model-parallel-size of 2"));
  EXPECT_THAT(refusal({"--pipeline-schedule", "opp", kChunks, "2"}, 2, 4), HasSubstr(kChunks));
}

TEST(PipelineOptions, TakeUnequalSizesUnderOpp) {
  const PipelineOptions opp =
      parsed({"--pipeline-schedule", "opp", "--manual-mbs", "1", "3", "3", "1"});
  EXPECT_THAT(opp.micro_batch_sizes(2, 2, 8), ElementsAre(1, 3, 3, 1));
  EXPECT_THAT(
      message_of(
          Fault::kUsage,
          [] {
            static_cast<void>(parsed({"--pipeline-schedule", "opp"}).micro_batch_sizes(2, 2, 8));
          }),
      HasSubstr("--pipeline-schedule opp: needs --manual-mbs"));
}

TEST(PipelineOptions, RefuseWhatDoesNotFit) {
  EXPECT_THAT(refusal({kChunkLayers, "3"}, 2, 8), HasSubstr("cannot divide 8 layers"));
  EXPECT_THAT(refusal({kChunkLayers, "0"}, 2, 8), HasSubstr(kChunkLayers));
  EXPECT_THAT(refusal({kChunkLayers, "1"}, 1, 8), HasSubstr("--pipeline-model-parallel-size of 2"));
  EXPECT_THAT(refusal({kChunkLayers, "1", kChunks, "2"}, 2, 8), HasSubstr("give one of them"));
  EXPECT_THAT(refusal({kChunks, "9"}, 2, 8), HasSubstr(kChunks));
  EXPECT_THAT(refusal({kChunks, "5"}, 2, 8), HasSubstr("10 chunks of a model (5 on each of 2"));
  EXPECT_THAT(refusal({"--pipeline-schedule", "zb-v"}, 4, 7), HasSubstr("got 7 layers"));
  EXPECT_THAT(refusal({kChunkLayers, "1", "--pipeline-schedule", "zb-h1"}, 2, 8),
              HasSubstr("--pipeline-schedule interleaved, aiao or fifo"));
  EXPECT_THAT(refusal({"--foldx-mode", "aiao"}, 2, 8), HasSubstr(kChunkLayers));
  EXPECT_THAT(refusal({"--microbatch-group-size-per-virtual-pipeline-stage", "4"}, 2, 8),
              HasSubstr("interleaved stages"));
  EXPECT_THAT(
      refusal({kChunkLayers, "1", "--microbatch-group-size-per-virtual-pipeline-stage", "3"}, 4, 8),
      HasSubstr("--microbatch-group-size-per-virtual-pipeline-stage"));
  EXPECT_THAT(refusal({"--optimized-pipeline", kChunkLayers, "1"}, 2, 8),
              HasSubstr("--optimized-pipeline: needs --pipeline-schedule 1f1b with one chunk"));
  EXPECT_THAT(refusal({"--optimized-pipeline"}, 1, 8),
              HasSubstr("--optimized-pipeline: needs --pipeline-model-parallel-size"));
  EXPECT_THAT(refusal({"--enable-recompute-layers-per-pp-rank", kChunkLayers, "1"}, 2, 8),
              HasSubstr("count layers of each chunk"));
  EXPECT_EQ(parsed({"--enable-recompute-layers-per-pp-rank"}).settings(2, 8).chunks, 1);
}

TEST(PipelineOptions, TakeLayersOfEachStage) {
  EXPECT_THAT(parsed({}).layers_of_chunks(2, 8), IsEmpty());
  EXPECT_THAT(
      parsed({"--use-manual-layer-allocation", "--manual-layers", "3,5"}).layers_of_chunks(2, 8),
      ElementsAre(3, 5));
  const auto refused = [](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage,
                      [&] { static_cast<void>(parsed(words).layers_of_chunks(2, 8)); });
  };
  EXPECT_THAT(refused({"--manual-layers", "3,5"}), HasSubstr("--use-manual-layer-allocation"));
  EXPECT_THAT(refused({"--use-manual-layer-allocation"}), HasSubstr("needs --manual-layers"));
  for (const char* bad :
       {"3,4", "8", "0,8", "3,5,", "3,x", "-1,9", "2,2,4", "3 5", "9,99999999999"}) {
    EXPECT_THAT(refused({"--use-manual-layer-allocation", "--manual-layers", bad}),
                HasSubstr("wanted 2 positive numbers"))
        << bad;
  }
}

TEST(PipelineOptions, TakeSizesOfMicroBatchesOrAPreset) {
  const auto sizes = [](const std::vector<std::string>& words, int stages, std::int64_t micro,
                        std::int64_t samples) {
    std::vector<std::string> all{"--optimized-pipeline", "--manual-mbs"};
    all.insert(all.end(), words.begin(), words.end());
    return parsed(all).micro_batch_sizes(stages, micro, samples);
  };
  EXPECT_THAT(parsed({}).micro_batch_sizes(2, 2, 8), IsEmpty());
  EXPECT_THAT(sizes({"1", "3", "2"}, 2, 2, 6), ElementsAre(1, 3, 2));
  EXPECT_THAT(sizes({"1,3,2"}, 2, 2, 6), ElementsAre(1, 3, 2));
  EXPECT_EQ(sizes({"example-config-1"}, 4, 4, 64).size(), 16U);
  EXPECT_EQ(sizes({"example-config-2"}, 8, 4, 96).size(), 24U);
  const auto refused = [&](const std::vector<std::string>& words, int stages, std::int64_t micro,
                           std::int64_t samples) {
    return message_of(Fault::kUsage, [&] { sizes(words, stages, micro, samples); });
  };
  EXPECT_THAT(refused({"example-config-1"}, 2, 4, 64), HasSubstr("is for 4 stages"));
  EXPECT_THAT(refused({"example-config-1"}, 4, 4, 32),
              HasSubstr("got 16 micro-batches of 64 samples together, wanted 8 of 32"));
  EXPECT_THAT(refused({"example-config-3"}, 4, 4, 64), HasSubstr("got \"example-config-3\""));
  EXPECT_THAT(refused({"1", "0", "5"}, 2, 2, 6), HasSubstr("got \"0\""));
  EXPECT_THAT(refused({"1", "5"}, 2, 2, 6), HasSubstr("wanted 3 of 6"));
  EXPECT_THAT(refused({"1", "2", "4"}, 2, 2, 6), HasSubstr("wanted 3 of 6"));
  const auto alone = [](const char* flag, const char* value) {
    return message_of(Fault::kUsage, [&] {
      std::vector<std::string> words{flag};
      if (*value != 0) words.emplace_back(value);
      static_cast<void>(parsed(words).micro_batch_sizes(2, 2, 8));
    });
  };
  EXPECT_THAT(alone("--optimized-pipeline", ""), HasSubstr("needs --manual-mbs"));
  EXPECT_THAT(alone("--manual-mbs", "2"),
              HasSubstr("needs --pipeline-schedule opp or --optimized-pipeline"));
}

double most_work(const std::vector<std::int64_t>& counts, double head) {
  double most = static_cast<double>(counts.back()) + head;
  for (const std::int64_t count : counts) most = std::max(most, static_cast<double>(count));
  return most;
}

// The least that any division of the layers has.
double least_work(std::vector<std::int64_t> counts, std::int64_t layers, std::size_t chunks,
                  double head) {
  if (counts.size() + 1 == chunks) {
    counts.push_back(layers);
    return most_work(counts, head);
  }
  double least = 1e9;
  const auto others = static_cast<std::int64_t>(chunks - counts.size() - 1);
  for (std::int64_t next = 1; next <= layers - others; ++next) {
    counts.push_back(next);
    least = std::min(least, least_work(counts, layers - next, chunks, head));
    counts.pop_back();
  }
  return least;
}

TEST(BalancedLayers, HaveTheLeastWorkOfAllDivisions) {
  for (int stages = 2; stages <= 4; ++stages) {
    std::vector<int> stage_of_chunk;
    for (int stage = 0; stage < stages; ++stage) stage_of_chunk.push_back(stage);
    for (std::int64_t layers = stages; layers <= 9; ++layers) {
      for (const double head : {0.0, 0.4, 1.0, 2.5, 7.0}) {
        const auto counts = balanced_layers(layers, stage_of_chunk, head);
        std::int64_t sum = 0;
        for (const std::int64_t count : counts) sum += count;
        EXPECT_EQ(sum, layers);
        EXPECT_DOUBLE_EQ(most_work(counts, head),
                         least_work({}, layers, static_cast<std::size_t>(stages), head))
            << layers << " layers on " << stages << " stages, head " << head;
      }
    }
  }
}

TEST(BalancedLayers, CountAllChunksOfAStage) {
  EXPECT_EQ(balanced_layers(8, {0, 1, 0, 1}, 2.0), (std::vector<std::int64_t>{3, 2, 2, 1}));
  // The first and the last chunk of a V are on one stage.
  EXPECT_EQ(balanced_layers(8, {0, 1, 1, 0}, 2.0), (std::vector<std::int64_t>{2, 3, 2, 1}));
}

}  // namespace
}  // namespace piton
