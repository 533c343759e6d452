#include "train/run/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PretrainOptions options_of(const std::vector<std::string>& words) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  std::vector<std::string> all = {"--model", "llama-tiny", "--train-iters", "10"};
  all.insert(all.end(), words.begin(), words.end());
  set.parse(all);
  return options;
}

PretrainOptions settled(const std::vector<std::string>& words, int ranks = 1) {
  const PretrainOptions options = options_of(words);
  return settled_options(options, make_run_plan(options, ranks, 0));
}

// What a resume of `first` would report, started as `second`.
std::vector<std::string> differences(PretrainOptions first, PretrainOptions second, Resume rule) {
  TempFolder folder;
  OptionSet then, now;
  first.add_to(then);
  second.add_to(now);
  write_text_file(folder / "config.toml", then.to_toml());
  return now.differences(folder / "config.toml", rule);
}

TEST(SettledOptions, SeeABatchThatFollowsFromOtherFlags) {
  EXPECT_THAT(differences(settled({"--micro-batch-size", "4"}),
                          settled({"--micro-batch-size", "2"}), Resume::kMustMatch),
              ElementsAre(HasSubstr("--global-batch-size: ")));
  EXPECT_THAT(differences(settled({"--micro-batch-size", "4"}),
                          settled({"--micro-batch-size", "4"}, 2), Resume::kMustMatch),
              ElementsAre(HasSubstr("has 4, this run has 8")));
  EXPECT_THAT(differences(settled({"--micro-batch-size", "4"}),
                          settled({"--micro-batch-size", "2", "--global-batch-size", "4"}, 2),
                          Resume::kMustMatch),
              IsEmpty());
}

TEST(SettledOptions, SeeALengthThatFollowsFromTheModel) {
  EXPECT_THAT(
      differences(settled({}), settled({"--max-position-embeddings", "64"}), Resume::kMustMatch),
      testing::Contains(HasSubstr("--seq-length: ")));
  EXPECT_THAT(differences(settled({}), settled({"--seq-length", "128"}), Resume::kMustMatch),
              IsEmpty());
}

// Resolving what was settled gives the model that was settled.
TEST(SettledOptions, ResolveToTheSameModel) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{},
                                             {"--is-x-model"},
                                             {"--hidden-size", "128"},
                                             {"--num-attention-heads", "8"},
                                             {"--normalization", "LayerNorm"},
                                             {"--position-embedding-type", "alibi"}}) {
    const PretrainOptions options = options_of(words);
    const RunPlan plan = make_run_plan(options, 1, 0);
    const ModelConfig again = settled_options(options, plan).model.resolve(std::nullopt);
    const ModelConfig& once = plan.session.model;
    EXPECT_EQ(again.parameters(), once.parameters());
    EXPECT_EQ(again.ffn_hidden, once.ffn_hidden);
    EXPECT_EQ(again.head_size, once.head_size);
    EXPECT_EQ(again.norm, once.norm);
    EXPECT_EQ(again.positions, once.positions);
    EXPECT_EQ(again.biases, once.biases);
    EXPECT_EQ(again.tied, once.tied);
  }
}

// The last id of NullTokenizer is not one of --vocab-size: what is stored counts as a flag does.
TEST(SettledOptions, OfNullTokenizerCountAsTheFlagDoes) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--tokenizer-type", "NullTokenizer", "--vocab-size", "100"},
           {"--tokenizer-type", "NullTokenizer"}}) {
    const PretrainOptions options = options_of(words);
    const RunPlan plan = make_run_plan(options, 1, 0);
    const PretrainOptions stored = settled_options(options, plan);
    EXPECT_EQ(stored.resolve_model(std::nullopt).vocabulary, plan.session.model.vocabulary);
    EXPECT_EQ(make_run_plan(stored, 1, 0).session.model.vocabulary, plan.session.model.vocabulary);
  }
  EXPECT_EQ(settled({"--tokenizer-type", "NullTokenizer", "--vocab-size", "100"}).model.vocabulary,
            100);
}

TEST(RunPlan, RefusesIntervalsThatAreNone) {
  for (const std::string flag :
       {"--exit-interval", "--log-interval", "--eval-interval", "--max-consecutive-skips"}) {
    EXPECT_THAT(message_of(Fault::kUsage,
                           [&] {
                             make_run_plan(options_of({flag, "0"}), 1, 0);
                           }),
                testing::StartsWith(flag + ": got 0, wanted"));
  }
}

TEST(RunPlan, KnowsTheChunksOfStagesAndTheSizesOfMicroBatches) {
  const std::vector<std::string> two{"--pipeline-model-parallel-size",
                                     "2",
                                     "--num-layers",
                                     "8",
                                     "--micro-batch-size",
                                     "2",
                                     "--global-batch-size",
                                     "8"};
  const auto plan_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = two;
    words.insert(words.end(), more.begin(), more.end());
    return make_run_plan(options_of(words), 2, 0);
  };
  EXPECT_THAT(plan_of({}).layers_of_stages(), ElementsAre(4, 4));
  EXPECT_THAT(plan_of({}).sizes_of_micro_batches(), ElementsAre(2, 2, 2, 2));
  const RunPlan chunks = plan_of({"--num-layers-per-virtual-pipeline-stage", "2"});
  EXPECT_THAT(chunks.layer_division().counts(), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(chunks.layers_of_stages(), ElementsAre(2, 2));
  const RunPlan unequal = plan_of({"--optimized-pipeline", "--manual-mbs", "1", "3", "3", "1",
                                   "--use-manual-layer-allocation", "--manual-layers", "5,3"});
  EXPECT_THAT(unequal.sizes_of_micro_batches(), ElementsAre(1, 3, 3, 1));
  EXPECT_THAT(unequal.layers_of_stages(), ElementsAre(5, 3));
  EXPECT_EQ(unequal.session.micro_batches, 4);
}

// Every batch of a ramp-up is checked before the run starts, not when it is reached.
TEST(RunPlan, RefusesARampUpWithAStepThatTheScheduleCannotHave) {
  const std::vector<std::string> words{"--pipeline-model-parallel-size",
                                       "2",
                                       "--num-layers-per-virtual-pipeline-stage",
                                       "1",
                                       "--global-batch-size",
                                       "8",
                                       "--train-iters",
                                       "0",
                                       "--train-samples",
                                       "64",
                                       "--rampup-batch-size",
                                       "2",
                                       "3",
                                       "20"};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { make_run_plan(options_of(words), 2, 0); }),
              HasSubstr("got 5 micro-batches a step on 2 stages"));
}

TEST(SettledOptions, ALongerRunChangesTheScheduleOnlyWhereThatHasAnEnd) {
  const auto longer = [](const std::vector<std::string>& words) {
    std::vector<std::string> more = words;
    more.insert(more.end(), {"--train-iters", "20"});
    EXPECT_THAT(differences(settled(words), settled(more), Resume::kMustMatch), IsEmpty());
    return differences(settled(words), settled(more), Resume::kSchedule);
  };
  EXPECT_THAT(longer({"--lr-decay-style", "constant"}), IsEmpty());
  EXPECT_THAT(longer({"--lr-decay-style", "cosine", "--lr-decay-iters", "10"}), IsEmpty());
  EXPECT_THAT(longer({"--lr-decay-style", "cosine"}), ElementsAre(HasSubstr("--lr-decay-iters: ")));
  EXPECT_THAT(longer({"--lr-decay-style", "constant", "--lr-warmup-fraction", "0.1"}),
              ElementsAre(HasSubstr("--lr-decay-iters: ")));
}

TEST(SettledOptions, LetEvaluationAndLoggingChange) {
  EXPECT_THAT(differences(settled({}),
                          settled({"--eval-interval", "3", "--eval-iters", "2", "--log-interval",
                                   "7", "--save", "x", "--save-interval", "5"}),
                          Resume::kMustMatch),
              IsEmpty());
}

}  // namespace
}  // namespace piton
