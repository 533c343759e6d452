// The configuration of DeepSpeed: what becomes of its keys, and every mistake in it by name.
#include "cli/compatibility/deepspeed_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/files/files.h"
#include "optim/learning_rate.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Those of AscendSpeed's scripts, pretrain_llama_7B_zero_8p.sh.
constexpr const char* kShipped = R"({
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000,
           "initial_scale_power": 8, "hysteresis": 2, "min_loss_scale": 1},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-6, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "zero_optimization": {"stage": 2, "allgather_partitions": true, "allgather_bucket_size": 1e8,
                        "overlap_comm": true, "reduce_scatter": true, "reduce_bucket_size": 1e8,
                        "contiguous_gradients": true},
  "gradient_accumulation_steps": 4, "train_batch_size": 64, "train_micro_batch_size_per_gpu": 8,
  "gradient_clipping": 1.0, "zero_allow_untested_optimizer": true, "steps_per_print": 10,
  "wall_clock_breakdown": false})";

class DeepSpeed : public testing::Test {
 protected:
  DeepSpeed() {
    options_.add_to(set_);
    set_.set_foreign(&flags_);
  }

  std::string write(const std::string& text) {
    const auto file = folder_.path() / "ds.json";
    AtomicFile out(file);
    out.write(text);
    out.commit();
    return file.string();
  }

  // Reads the configuration of a run with these flags on two data-parallel ranks.
  void read(const std::string& text, std::vector<std::string> words = {}) {
    words.insert(words.end(), {"--deepspeed", "--deepspeed_config", write(text)});
    parse(words);
  }
  void parse(const std::vector<std::string>& words) {
    set_.parse(words);
    const auto config = read_deepspeed(flags_, set_, options_.parallel);
    if (config) config->settle_batch(set_, 2);
  }
  // The mistakes, without the name of the file.
  std::string refusal(const std::string& text, const std::vector<std::string>& words = {}) {
    std::string message = message_of(Fault::kUsage, [&] { read(text, words); });
    const std::string name = (folder_.path() / "ds.json").string() + ": ";
    for (auto at = message.find(name); at != std::string::npos; at = message.find(name)) {
      message.erase(at, name.size());
    }
    return message;
  }

  TempFolder folder_;
  PretrainOptions options_;
  OptionSet set_;
  MegatronFlags flags_;
};

TEST_F(DeepSpeed, OfAscendSpeedBecomesOptions) {
  read(kShipped);
  EXPECT_EQ(options_.parallel.zero_stage, 2);
  EXPECT_EQ(options_.loop.micro_batch_size, 8);
  EXPECT_EQ(options_.loop.global_batch_size, 64);
  EXPECT_TRUE(options_.model.fp16);
  EXPECT_EQ(options_.learning_rate.lr, 1e-6);
  EXPECT_EQ(options_.optimizer.beta2, 0.95);
  EXPECT_EQ(options_.optimizer.weight_decay, 0.1);
  EXPECT_EQ(options_.optimizer.clip_grad, 1.0);
  EXPECT_EQ(options_.optimizer.initial_loss_scale, 256);
  EXPECT_EQ(options_.optimizer.loss_scale_window, 1000);
  for (const ChangedOption& one : set_.changed()) EXPECT_THAT(one.origin, HasSubstr("ds.json"));
}

TEST_F(DeepSpeed, LeavesAutoToFlags) {
  read(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
           "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
           "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 10},
           "bf16": {"enabled": "auto"},
           "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                         "weight_decay": "auto"}},
           "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})",
       {"--bf16", "--micro-batch-size", "2", "--global-batch-size", "8", "--lr", "0.5"});
  EXPECT_EQ(options_.parallel.zero_stage, 3);
  EXPECT_EQ(options_.loop.micro_batch_size, 2);
  EXPECT_EQ(options_.loop.global_batch_size, 8);
  EXPECT_TRUE(options_.model.bf16);
  EXPECT_FALSE(options_.model.fp16);
  EXPECT_NE(options_.optimizer.initial_loss_scale, 1024);  // fp16 is off
  EXPECT_EQ(options_.learning_rate.lr, 0.5);
}

TEST_F(DeepSpeed, SettlesTheThirdNumberOfABatch) {
  read(R"({"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 4})");
  EXPECT_EQ(options_.loop.global_batch_size, 24);
}

TEST_F(DeepSpeed, DividesTheBatchIntoMicroBatches) {
  read(R"({"train_batch_size": 24, "gradient_accumulation_steps": 4})");
  EXPECT_EQ(options_.loop.micro_batch_size, 3);
}

TEST_F(DeepSpeed, TakesTheWholeBatchAtOnce) {
  read(R"({"train_batch_size": 24})");
  EXPECT_EQ(options_.loop.micro_batch_size, 12);
}

TEST_F(DeepSpeed, RefusesBatchesThatDoNotAgree) {
  EXPECT_THAT(refusal(R"({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 2,
                          "gradient_accumulation_steps": 4})"),
              HasSubstr("train_batch_size is 30, but train_micro_batch_size_per_gpu 2 x "
                        "gradient_accumulation_steps 4 x 2 data-parallel ranks are 16"));
}

TEST_F(DeepSpeed, RefusesABatchThatCannotBeDivided) {
  EXPECT_THAT(refusal(R"({"train_batch_size": 30, "gradient_accumulation_steps": 4})"),
              HasSubstr("train_batch_size: 30 cannot be divided by 8"));
}

TEST_F(DeepSpeed, NamesEveryMistakeAtOnce) {
  EXPECT_THAT(
      refusal(R"({"zero_optimisation": {}, "zero_optimization": {"stag": 2, "overlap_comm": 3},
                  "train_batch_size": 1.5, "gradient_accumulation_steps": 0, "schedule": {},
                  "fp16": true, "optimizer": {"type": "Lion", "params": {"rate": 1}},
                  "amp": {"enabled": true}, "bf16": {"enabled": "yes"},
                  "gradient_clipping": -1})"),
      AllOf(HasSubstr("zero_optimisation: unknown; did you mean zero_optimization"),
            HasSubstr("zero_optimization.stag: unknown; did you mean zero_optimization.stage?"),
            HasSubstr("zero_optimization.overlap_comm: got 3, wanted true or false"),
            HasSubstr("train_batch_size: got 1.5, wanted a whole number from 0 up"),
            HasSubstr("gradient_accumulation_steps: got 0, wanted a whole number from 1 up"),
            HasSubstr("schedule: unknown; did you mean scheduler?"),
            HasSubstr("fp16: got true, wanted an object"),
            HasSubstr("optimizer.type: got \"Lion\", wanted \"Adam\", \"AdamW\" or \"SGD\""),
            HasSubstr("optimizer.params.rate: unknown; wanted lr"),
            HasSubstr("amp.enabled: got true, wanted false"),
            HasSubstr("bf16.enabled: got \"yes\", wanted true, false or \"auto\""),
            HasSubstr("gradient_clipping: got -1, wanted a number from 0 up")));
}

TEST_F(DeepSpeed, RefusesWhatFlagsContradict) {
  EXPECT_THAT(
      refusal(R"({"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0})",
              {"--zero-stage", "1", "--clip-grad", "1", "--fp16"}),
      AllOf(HasSubstr("zero_optimization.stage is 2, but --zero-stage is 1; give the same"),
            HasSubstr("fp16.enabled is not true, but --fp16 is given"), Not(HasSubstr("clip"))));
}

TEST_F(DeepSpeed, MovesTheStateOfTheOptimizer) {
  read(R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme",
           "nvme_path": "/disk", "pin_memory": true}, "offload_param": {"device": "none"}}})");
  EXPECT_EQ(options_.offload.remote_device, "/disk");
}

// The rates of DeepSpeed itself (tools/oracle/deepspeed_schedules.py).
TEST_F(DeepSpeed, SchedulesTheLearningRate) {
  std::ifstream golden(std::filesystem::path(PITON_SOURCE_DIR) /
                       "tests/golden/deepspeed_schedules.txt");
  int cases = 0;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string scheduler;
    words >> scheduler;
    SCOPED_TRACE(scheduler);
    PretrainOptions options;
    OptionSet set;
    options.add_to(set);
    DeepSpeedConfig config(write("{\"scheduler\": " + scheduler + "}"));
    config.apply(set);
    const LearningRate rate(options.learning_rate, /*train_steps=*/30, /*global_batch=*/1);
    double wanted = 0;
    int iteration = 0;
    for (; words >> wanted; ++iteration) {
      EXPECT_NEAR(rate.at(iteration), wanted, 1e-15) << iteration;
    }
    EXPECT_EQ(iteration, 30);
    ++cases;
  }
  EXPECT_EQ(cases, 4);
}

TEST_F(DeepSpeed, TakesTheRateOfTheSchedulerInPlaceOfTheOptimizers) {
  read(R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-6}},
           "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-4,
                         "warmup_num_steps": "auto", "warmup_type": "linear"}}})",
       {"--lr-warmup-iters", "7"});
  EXPECT_EQ(options_.learning_rate.lr, 2e-4);
  EXPECT_EQ(options_.learning_rate.warmup_iters, 7);
  EXPECT_EQ(options_.learning_rate.decay_style, DecayStyle::kConstant);
}

TEST_F(DeepSpeed, RefusesSchedulesThatAreNotHereByKey) {
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "OneCycle"}})"),
              HasSubstr("scheduler.type: got \"OneCycle\", wanted \"WarmupLR\" or"));
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupCosineLR"}})"),
              HasSubstr("give --lr-decay-style cosine, --lr-warmup-iters"));
  EXPECT_THAT(
      refusal(R"({"scheduler": {"type": "WarmupDecayLR", "last": 1, "params": {
                  "warmup_min_lr": 1e-6, "warmup_max_lr": "high", "warmup_num_step": 3,
                  "warmup_num_steps": 1.5, "last_batch_iteration": 4}}})"),
      AllOf(HasSubstr("scheduler.last: unknown; wanted type and params"),
            HasSubstr("scheduler.params.warmup_min_lr: got 1e-06, wanted 0"),
            HasSubstr("scheduler.params.warmup_max_lr: got \"high\", wanted a number"),
            HasSubstr("scheduler.params.warmup_num_step: unknown; did you mean warmup_num_steps?"),
            HasSubstr("scheduler.params.warmup_num_steps: got 1.5, wanted a whole number"),
            HasSubstr("scheduler.params.warmup_type: is \"log\" where it is left out"),
            HasSubstr("scheduler.params.last_batch_iteration: got 4, wanted -1"),
            HasSubstr("scheduler.params.total_num_steps: is not there")));
  EXPECT_THAT(refusal(R"({"scheduler": [1]})"), HasSubstr("scheduler: got [1], wanted an object"));
}

TEST_F(DeepSpeed, RefusesToMoveWeights) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_param": {"device": "cpu"}}})"),
              HasSubstr("offload_param.device: got \"cpu\", wanted \"none\""));
}

TEST_F(DeepSpeed, RefusesFilesThatAreNone) {
  EXPECT_THAT(refusal("{"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("got [1], wanted an object"));
}

TEST_F(DeepSpeed, NeedsItsCompanions) {
  const auto of = [&](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { parse(words); });
  };
  EXPECT_THAT(of({"--deepspeed"}), HasSubstr("--deepspeed: needs --deepspeed_config FILE"));
}

TEST_F(DeepSpeed, IsAskedForByItsFlag) {
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           parse({"--deepspeed_config", write("{}")});
                         }),
              HasSubstr("--deepspeed_config: needs --deepspeed"));
}

TEST_F(DeepSpeed, IsWithoutStagesIfTheScriptSaysSo) {
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           parse({"--no-pipeline-parallel", "--pipeline-model-parallel-size", "2"});
                         }),
              HasSubstr("--no-pipeline-parallel: --pipeline-model-parallel-size is 2, wanted 1"));
}

}  // namespace
}  // namespace piton::cli
