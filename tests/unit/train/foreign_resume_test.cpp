// Runs of Megatron continue as PyTorch does from there (tools/oracle/megatron_resume.py), and those
// with expert ranks, whose experts drop tokens, as Megatron-core does
// (tools/oracle/megatron_experts_resume.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr int kSteps = 14;
constexpr int kStop = 6;  // where the checkpoints were written

std::string golden(const std::string& name) {
  return PITON_SOURCE_DIR "/tests/golden/megatron/resume/" + name;
}

struct GoldenStep {
  double loss = 0;
  double norm = 0;
  double rate = 0;
};

std::map<int, GoldenStep> golden_steps(const std::string& model) {
  std::ifstream file(golden(model == "experts" ? "experts_losses.txt" : "losses.txt"));
  std::map<int, GoldenStep> steps;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int step = 0;
    GoldenStep one;
    if (words >> name >> step >> one.loss >> one.norm >> one.rate && name == model)
      steps[step] = one;
  }
  return steps;
}

PretrainOptions options_of(const std::string& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words{"--load",
                                 folder,
                                 "--data-path",
                                 golden("corpus"),
                                 "--split",
                                 "100,0,0",
                                 "--lr",
                                 "1e-2",
                                 "--min-lr",
                                 "1e-3",
                                 "--seq-length",
                                 "16",
                                 "--micro-batch-size",
                                 "2",
                                 "--global-batch-size",
                                 "4",
                                 "--seed",
                                 "1234",
                                 "--train-iters",
                                 "14",
                                 "--lr-decay-style",
                                 "cosine",
                                 "--lr-decay-iters",
                                 "12",
                                 "--lr-warmup-iters",
                                 "3",
                                 "--weight-decay",
                                 "0.1",
                                 "--adam-beta2",
                                 "0.95"};
  words.insert(words.end(), more.begin(), more.end());
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  set.parse(words);
  return options;
}

struct WholeRun {
  std::vector<StepMetrics> steps;
  std::vector<std::string> messages;
  TrainState start;
};

WholeRun run_to_the_end(World& world, const PretrainOptions& options) {
  test::SmallMachine own(world);
  EventSink sink;
  Trainer trainer(own.machine(), options, {&sink});
  WholeRun run{.start = trainer.state()};
  while (!trainer.done()) run.steps.push_back(trainer.step());
  trainer.finish();
  run.messages = sink.messages;
  return run;
}

WholeRun run_alone(const PretrainOptions& options) {
  HostDevice device;
  const std::unique_ptr<World> world = make_single_world(device);
  return run_to_the_end(*world, options);
}

void expect_golden(const std::vector<StepMetrics>& steps, const std::string& model) {
  const std::map<int, GoldenStep> wanted = golden_steps(model);
  ASSERT_EQ(wanted.size(), kSteps);
  ASSERT_EQ(steps.size(), kSteps - kStop);
  for (const StepMetrics& step : steps) {
    const GoldenStep& one = wanted.at(static_cast<int>(step.iteration));
    EXPECT_NEAR(step.lm_loss, one.loss, 1e-5) << step.iteration;
    EXPECT_NEAR(step.grad_norm, one.norm, 1e-4) << step.iteration;
    EXPECT_NEAR(step.learning_rate, one.rate, 1e-12) << step.iteration;
  }
}

struct Form {
  const char* folder;
  const char* model;
};
const std::vector<Form> kForms = {{"gpt", "gpt"},
                                  {"llama", "llama"},
                                  {"buffer", "llama"},
                                  {"zero", "llama"},
                                  {"shares", "llama"},
                                  {"shares_gpt", "gpt"},
                                  {"zero3", "llama"},
                                  {"experts_groups", "experts"},
                                  {"experts_buffer", "experts"},
                                  {"experts_dist", "experts"}};

TEST(MegatronResume, GoesOnAsPyTorchDoesFromEveryForm) {
  for (const auto& [folder, model] : kForms) {
    SCOPED_TRACE(folder);
    const WholeRun run = run_alone(options_of(golden(folder)));
    EXPECT_EQ(run.start.iteration, kStop);
    EXPECT_EQ(run.start.consumed_samples, 4 * kStop);
    EXPECT_EQ(run.start.consumed_tokens, 4 * kStop * 16);
    EXPECT_EQ(run.start.optimizer_steps, kStop);
    EXPECT_EQ(run.start.scheduled_samples, 4 * kStop);
    expect_golden(run.steps, model);
    EXPECT_THAT(run.messages, Contains(AllOf(HasSubstr("resumed "), HasSubstr("iteration 6, 24 "
                                                                              "samples"))));
    EXPECT_THAT(run.messages, Not(Contains(HasSubstr("stays behind"))));
  }
}

TEST(MegatronResume, GoesOnInEveryLayout) {
  const std::vector<std::vector<std::string>> layouts{{"--tensor-model-parallel-size", "2"},
                                                      {"--pipeline-model-parallel-size", "2"},
                                                      {"--zero-stage", "1"}};
  std::size_t turn = 0;
  for (const auto& [folder, model] : test::sampled(kForms, 2)) {
    std::vector<std::vector<std::string>> own = test::sampled(layouts, 3, turn++);
    if (folder == std::string("experts_groups"))
      own.push_back({"--expert-model-parallel-size", "2"});
    for (const std::vector<std::string>& layout : own) {
      SCOPED_TRACE(folder + layout.front());
      std::mutex mutex;
      test::run_ranks(2, [&](World& world) {
        const WholeRun run = run_to_the_end(world, options_of(golden(folder), layout));
        const std::lock_guard lock(mutex);
        expect_golden(run.steps, model);
      });
    }
  }
}

TEST(MegatronResume, InHalfPrecisionHasItsCopiesAndMoments) {
  // The weights are those of `llama` and `experts` rounded to bf16: their losses follow from afar.
  const std::vector<std::string> folders{"half",         "flat",           "buckets",
                                         "shares_half",  "shares_one",     "zero3_half",
                                         "experts_half", "experts_buckets"};
  for (const std::string& folder : test::sampled(folders, 2, 1)) {
    SCOPED_TRACE(folder);
    const bool experts = folder.starts_with("experts");
    const std::map<int, GoldenStep> wanted = golden_steps(experts ? "experts" : "llama");
    const WholeRun run = run_alone(options_of(golden(folder), {"--bf16"}));
    ASSERT_EQ(run.steps.size(), kSteps - kStop);
    for (const StepMetrics& step : run.steps)
      EXPECT_NEAR(step.lm_loss, wanted.at(static_cast<int>(step.iteration)).loss, 0.03);
  }
  const std::string refusal =
      message_of(Fault::kUsage, [] { run_alone(options_of(golden("half"))); });
  EXPECT_THAT(refusal, HasSubstr("the weights of "));
  EXPECT_THAT(refusal, HasSubstr("are bf16, this run computes in fp32"));
}

TEST(MegatronResume, SavesARunThatGoesOnWithTheSameBits) {
  const TempFolder dir;
  const std::string save = (dir / "run").string();
  // The flags of a script of Megatron-LM.
  const std::vector<std::string> model{"--num-layers",
                                       "2",
                                       "--hidden-size",
                                       "16",
                                       "--ffn-hidden-size",
                                       "24",
                                       "--num-attention-heads",
                                       "4",
                                       "--num-query-groups",
                                       "2",
                                       "--max-position-embeddings",
                                       "64",
                                       "--swiglu",
                                       "--normalization",
                                       "RMSNorm",
                                       "--norm-epsilon",
                                       "1e-6",
                                       "--position-embedding-type",
                                       "rope",
                                       "--disable-bias-linear",
                                       "--untie-embeddings-and-output-weights",
                                       "--vocab-size",
                                       "128",
                                       "--hidden-dropout",
                                       "0",
                                       "--attention-dropout",
                                       "0",
                                       "--save",
                                       save};
  const WholeRun whole = run_alone(options_of(golden("llama")));
  HostDevice device;
  const std::unique_ptr<World> world = make_single_world(device);
  {
    test::SmallMachine own(*world);
    Trainer trainer(own.machine(), options_of(golden("llama"), model), {});
    for (int i = 0; i < 3; ++i) trainer.step();
    trainer.save();
    trainer.finish();
  }
  const WholeRun rest = run_alone(options_of(save, model));
  EXPECT_EQ(rest.start.iteration, kStop + 3);
  ASSERT_EQ(rest.steps.size(), whole.steps.size() - 3);
  for (std::size_t i = 0; i < rest.steps.size(); ++i)
    EXPECT_EQ(rest.steps[i].lm_loss, whole.steps[i + 3].lm_loss);
}

TEST(MegatronResume, StartsAnewWhereItIsTold) {
  const WholeRun fresh = run_alone(options_of(golden("llama"), {"--finetune"}));
  EXPECT_EQ(fresh.start.iteration, 0);
  EXPECT_EQ(fresh.start.consumed_samples, 0);
  EXPECT_EQ(fresh.steps.size(), kSteps);
  EXPECT_THAT(fresh.messages, Contains(HasSubstr("a new run from the weights of ")));
  // The place in the data stays, moments and schedule do not.
  const WholeRun partly = run_alone(options_of(golden("llama"), {"--no-load-optim"}));
  EXPECT_EQ(partly.start.iteration, kStop);
  EXPECT_EQ(partly.start.consumed_samples, 4 * kStop);
  EXPECT_EQ(partly.start.optimizer_steps, 0);
  EXPECT_EQ(partly.steps.front().learning_rate, 0) << "the warm-up begins again";
  EXPECT_NEAR(partly.steps.front().lm_loss, golden_steps("llama").at(kStop + 1).loss, 1e-5);
}

TEST(MegatronResume, OfAnotherExperimentIsRefused) {
  const auto refusal = [](const std::vector<std::string>& more) {
    return message_of(Fault::kUsage, [&] { run_alone(options_of(golden("llama"), more)); });
  };
  for (const auto& [flag, value, message] :
       {std::array{"--seed", "5", "--seed: "},
        std::array{"--adam-beta2", "0.99", "has 0.95, this run has 0.99"},
        std::array{"--global-batch-size", "8", "--global-batch-size: "},
        std::array{"--clip-grad", "2", "--clip-grad: "},
        std::array{"--optimizer", "sgd", "--optimizer: "}}) {
    EXPECT_THAT(refusal({flag, value}),
                AllOf(HasSubstr("is another experiment"), HasSubstr(message)));
  }
  EXPECT_THAT(refusal({"--lr", "2e-2"}), AllOf(HasSubstr("another schedule of learning rate"),
                                               HasSubstr("has 0.01, this run has 0.02")));
  EXPECT_THAT(refusal({"--lr-warmup-iters", "4"}), HasSubstr("has 3 steps, this run has 4 steps"));
  EXPECT_THAT(refusal({"--lr-decay-iters", "13"}), HasSubstr("has 12 steps, this run has 13"));
  EXPECT_THAT(refusal({"--weight-decay", "0.2"}), HasSubstr("--weight-decay: "));
}

TEST(MegatronResume, TakesTheScheduleThatIsWanted) {
  const WholeRun ours =
      run_alone(options_of(golden("llama"), {"--lr", "2e-2", "--override-opt_param-scheduler"}));
  const double rate = golden_steps("llama").at(kStop + 1).rate;
  // Cosine between 2e-2 and 1e-3, where the checkpoint's is between 1e-2 and 1e-3.
  EXPECT_NEAR(ours.steps.front().learning_rate, 1e-3 + (rate - 1e-3) / 9e-3 * 19e-3, 1e-12);
  EXPECT_THAT(ours.messages, Contains(HasSubstr("from here on by this run's schedule: --lr: ")));
  const WholeRun theirs = run_alone(options_of(
      golden("llama"), {"--lr", "2e-2", "--lr-decay-style", "linear", "--lr-warmup-iters", "1",
                        "--weight-decay", "0.3", "--use-checkpoint-opt_param-scheduler"}));
  expect_golden(theirs.steps, "llama");
}

}  // namespace
}  // namespace piton
