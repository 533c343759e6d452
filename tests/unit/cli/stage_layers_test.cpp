// Which layers the stages get by Megatron's and MindSpeed's flags, and what is refused. The numbers
// are those of get_num_layers_to_build of Megatron-core 0.16, and of its counts without layers that
// do nothing.
#include "cli/compatibility/stage_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(StageLayers, LeaveOutLayersThatDoNothing) {
  EXPECT_THAT(layers_of_chunks({.layers = 8, .stages = 4, .noops = {0, 7}}),
              ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(layers_of_chunks({.layers = 8, .stages = 2, .chunks_of_stage = 2, .noops = {7}}),
              ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(layers_of_chunks({.layers = 4, .noops = {1, 2}}), ElementsAre(2));
  EXPECT_THAT(layers_of_chunks({.layers = 6, .stages = 2, .given = {2, 4}, .noops = {5}}),
              ElementsAre(2, 3));
}

TEST(StageLayers, GiveTheEndsTheirOwnNumbers) {
  EXPECT_THAT(layers_of_chunks({.layers = 10, .stages = 4, .first = 1, .last = 3}),
              ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(layers_of_chunks({.layers = 10, .stages = 4, .first = 1}), ElementsAre(1, 3, 3, 3));
  EXPECT_THAT(layers_of_chunks({.layers = 10, .stages = 4, .last = 1}), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(layers_of_chunks({.layers = 6, .stages = 2, .chunks_of_stage = 2, .first = 2}),
              ElementsAre(1, 2, 1, 2));
}

TEST(StageLayers, CountTheEmbeddingAndTheHead) {
  EXPECT_THAT(
      layers_of_chunks({.layers = 6, .stages = 4, .counts_embedding = true, .counts_loss = true}),
      ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(layers_of_chunks({.layers = 7, .stages = 4, .counts_loss = true}),
              ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(layers_of_chunks({.layers = 7, .stages = 4, .counts_embedding = true}),
              ElementsAre(1, 2, 2, 2));
}

TEST(StageLayers, MustDivideAndLeaveNoChunkEmpty) {
  const auto refusal = [](const StageLayers& wanted) {
    return message_of(Fault::kUsage, [&] { layers_of_chunks(wanted); });
  };
  EXPECT_EQ(refusal({.layers = 10, .stages = 4, .first = 2}),
            "--decoder-first-pipeline-num-layers: 8 layers are left for 3 other stages, wanted a "
            "multiple; change --num-layers");
  EXPECT_THAT(
      refusal({.layers = 8, .stages = 4, .counts_loss = true}),
      HasSubstr(
          "--account-for-loss-in-pipeline-split: 9 layers, with the ends that count as layers"));
  EXPECT_THAT(refusal({.layers = 4, .stages = 2, .noops = {2, 3}}),
              HasSubstr("--noop-layers: chunk 1 of the 2 on the stages would have no layer"));
  EXPECT_THAT(refusal({.layers = 2, .noops = {0, 1}}), HasSubstr("would have no layer"));
  EXPECT_THAT(refusal({.layers = 8, .stages = 1, .first = 2}),
              HasSubstr("needs --pipeline-model-parallel-size of 2 or more"));
  EXPECT_THAT(refusal({.layers = 8, .stages = 2, .last = 2, .counts_loss = true}),
              HasSubstr("leave out --account-for-loss-in-pipeline-split"));
  EXPECT_THAT(refusal({.layers = 8, .stages = 2, .given = {4, 4}, .last = 2}),
              HasSubstr("--manual-layers defines the same"));
}

struct Parsed {
  PretrainOptions options;
  OptionSet set;
  MegatronFlags flags;

  explicit Parsed(const std::vector<std::string>& words) {
    options.add_to(set);
    set.set_foreign(&flags);
    set.parse(words);
    read_stage_layers(flags, set, options.parallel, options.model);
  }
};

TEST(StageLayers, BecomeOptions) {
  const Parsed noops(
      {"--num-layers", "8", "--pipeline-model-parallel-size", "4", "--noop-layers", "0,7"});
  EXPECT_EQ(noops.options.model.layers, 6);
  EXPECT_EQ(noops.options.parallel.schedule.manual_layers, "1,2,2,1");
  EXPECT_THAT(noops.options.parallel.schedule.layers_of_chunks(4, 6), ElementsAre(1, 2, 2, 1));
  const Parsed chunks({"--num-layers", "8", "--pipeline-model-parallel-size", "2", "--noop-layers",
                       "7", "--num-layers-per-virtual-pipeline-stage", "2"});
  EXPECT_EQ(chunks.options.parallel.schedule.settings(2, 7).chunks, 2);
  EXPECT_EQ(chunks.options.parallel.schedule.manual_layers, "2,2,2,1");
  const Parsed one({"--num-layers", "4", "--noop-layers", "3"});
  EXPECT_EQ(one.options.model.layers, 3);
  EXPECT_EQ(one.options.parallel.schedule.manual_layers, "");
}

TEST(StageLayers, OfALayout) {
  const Parsed stages({"--num-layers", "8", "--pipeline-model-parallel-size", "4",
                       "--pipeline-model-parallel-layout", "Et|(ttt|)*2tL"});
  EXPECT_EQ(stages.options.parallel.schedule.manual_layers, "1,3,3,1");
  EXPECT_EQ(stages.options.parallel.schedule.settings(4, 8).chunks, 1);
  const Parsed chunks({"--num-layers", "8", "--pipeline-model-parallel-size", "2",
                       "--pipeline-model-parallel-layout", "Et|ttt|ttt|tL"});
  EXPECT_EQ(chunks.options.parallel.schedule.settings(2, 8).chunks, 2);
  EXPECT_THAT(chunks.options.parallel.schedule.layers_of_chunks(4, 8), ElementsAre(1, 3, 3, 1));
  const Parsed one({"--num-layers", "4", "--pipeline-model-parallel-layout", "Et*4L"});
  EXPECT_EQ(one.options.parallel.schedule.manual_layers, "");
}

TEST(StageLayers, OfALayoutThatContradicts) {
  const auto refusal = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--pipeline-model-parallel-size", "2"});
    return message_of(Fault::kUsage, [&] { Parsed parsed(words); });
  };
  EXPECT_EQ(
      refusal({"--num-layers", "8", "--pipeline-model-parallel-layout", "Ettt|tttL"}),
      "--pipeline-model-parallel-layout: got \"Ettt|tttL\": 6 layers, wanted --num-layers, 8");
  EXPECT_EQ(refusal({"--pipeline-model-parallel-layout", "Et|tt|tL"}),
            "--pipeline-model-parallel-layout: got \"Et|tt|tL\": 3 chunks, wanted a multiple of "
            "--pipeline-model-parallel-size 2");
  EXPECT_THAT(refusal({"--pipeline-model-parallel-layout", "Et|tL",
                       "--num-virtual-stages-per-pipeline-rank", "2"}),
              HasSubstr("leave out --num-virtual-stages-per-pipeline-rank"));
  EXPECT_THAT(refusal({"--num-layers", "2", "--pipeline-model-parallel-layout", "Et|tL",
                       "--noop-layers", "1"}),
              HasSubstr("leave out --noop-layers"));
}

TEST(StageLayers, RefuseWhatIsNoNumber) {
  const auto refusal = [](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { Parsed parsed(words); });
  };
  EXPECT_EQ(refusal({"--num-layers", "4", "--noop-layers", "4"}),
            "--noop-layers: got \"4\", wanted whole numbers from 0 to 3");
  EXPECT_THAT(refusal({"--num-layers", "4", "--noop-layers", "1,x"}), HasSubstr("got \"x\""));
  EXPECT_THAT(refusal({"--num-layers", "4", "--noop-layers", "1,1"}), HasSubstr("1 twice"));
  EXPECT_THAT(refusal({"--noop-layers", "1"}), HasSubstr("--noop-layers: needs --num-layers"));
  EXPECT_THAT(refusal({"--num-layers", "4", "--pipeline-model-parallel-size", "2",
                       "--decoder-last-pipeline-num-layers", "0"}),
              HasSubstr("got \"0\", wanted whole numbers from 1 to 4"));
}

}  // namespace
}  // namespace piton::cli
