#include "train/run/option_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/run/run_plan.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PretrainOptions given(const std::string& file, const std::vector<std::string>& words) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  set.read_toml_text(file, "base.toml");
  set.parse(words);
  options.changed = set.changed();
  return options;
}

std::vector<std::string> lines_of(const PretrainOptions& options) {
  return option_lines(options, settled_options(options, make_run_plan(options, 1, 0)));
}

TEST(OptionLines, SayWhereEachValueIsFrom) {
  const auto lines =
      lines_of(given("model = \"llama-tiny\"\ntrain-iters = 10\nlr = 1e-3\nclip-grad = 1.0\n",
                     {"--lr", "2e-3", "--bf16", "--data-path", "a", "b"}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "options of base.toml: model = \"llama-tiny\", train-iters = 10");
  EXPECT_EQ(lines[1],
            "options of the command line: bf16 = true, lr = 0.002, data-path = [\"a\", \"b\"]");
  EXPECT_THAT(lines[2], testing::StartsWith("options by rule: model-family = \"llama\", "));
  EXPECT_THAT(lines[2], HasSubstr(", lr-decay-iters = 10"));
  EXPECT_THAT(lines[2], HasSubstr(", global-batch-size = 1,"));
  EXPECT_THAT(lines[2], Not(HasSubstr("train-iters")));
}

TEST(OptionLines, NameWhatHasNoEffect) {
  const auto lines = [](const std::vector<std::string>& words) {
    const PretrainOptions options = given("train-iters = 1\n", words);
    return lines_without_effect(options, make_run_plan(options, 1, 0).session.model);
  };
  EXPECT_THAT(lines({"--model", "llama-tiny", "--sequence-parallel", "--save-interval", "10",
                     "--no-save-optim", "--no-bias-gelu-fusion", "--rotary-base", "500"}),
              ElementsAre("--save-interval: has no effect: nothing is saved, since no --save is "
                          "given",
                          HasSubstr("--no-save-optim: has no effect"),
                          "--sequence-parallel: has no effect: --tensor-model-parallel-size is 1",
                          HasSubstr("--no-bias-gelu-fusion: has no effect: it is of a GELU")));
  EXPECT_THAT(lines({"--model", "gpt2-tiny", "--no-bias-gelu-fusion", "--rotary-base", "500",
                     "--save", "run", "--save-interval", "10"}),
              ElementsAre("--rotary-base: has no effect: this model has no rotary positions"));
}

// A value that equals the default is not worth a word, whoever gave it.
TEST(OptionLines, LeaveOutDefaults) {
  const auto lines =
      lines_of(given("", {"--model", "llama-tiny", "--train-iters", "1", "--seed", "1234"}));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0] + lines[1], Not(HasSubstr("seed")));
}

TEST(OptionLines, NameTheSchedulesOfTheCheckpoint) {
  const PretrainOptions options = given("", {"--model", "llama-tiny", "--train-iters", "10", "--lr",
                                             "1", "--use-checkpoint-opt_param-scheduler"});
  PretrainOptions settled = settled_options(options, make_run_plan(options, 1, 0));
  settled.learning_rate.lr = 0.5;
  settled.learning_rate.min_lr = 0.25;
  const auto lines = option_lines(options, settled);
  EXPECT_THAT(lines, ElementsAre(Not(HasSubstr(" lr = ")), HasSubstr("options by rule: "),
                                 "options of the checkpoint: lr = 0.5, min-lr = 0.25, "
                                 "lr-decay-iters = 10"));
}

}  // namespace
}  // namespace piton
