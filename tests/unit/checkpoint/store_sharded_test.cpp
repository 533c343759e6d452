// A run with real shards that is saved, loaded and continued equals an uninterrupted run, for every
// ZeRO stage; all stages write the same checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/store.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_run.h"

namespace piton {
namespace {

using test::run_ranks;
using test::ShardedRun;
using test::TestLayout;

TEST(Resume, IsBitExactForEveryZeroStageAndFromEveryOther) {
  const OptimizerOptions adam;
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd};
  const OptimizerOptions plain{.kind = OptimizerKind::kSgd, .sgd_momentum = 0};
  const OptimizerOptions half{.first_moment = DType::kBF16, .second_moment = DType::kBF16};
  const std::vector<std::pair<const OptimizerOptions*, DType>> all = {
      {&adam, DType::kF32},   {&adam, DType::kBF16}, {&sgd, DType::kF32},  {&sgd, DType::kBF16},
      {&plain, DType::kBF16}, {&plain, DType::kF32}, {&half, DType::kF32}, {&half, DType::kBF16}};
  for (const auto& one : test::sampled(all, 3, 1)) {  // bf16 by day
    const OptimizerOptions& options = *one.first;
    const DType dtype = one.second;
    const TempFolder dir;
    std::string weights, moments;
    const auto check = [&](const std::filesystem::path& folder, int stage, const char* what) {
      if (weights.empty()) {
        weights = weights_hash(folder);
        moments = optimizer_hash(folder);
      }
      EXPECT_EQ(weights_hash(folder), weights) << what << ", ZeRO stage " << stage;
      EXPECT_EQ(optimizer_hash(folder), moments) << what << ", ZeRO stage " << stage;
    };
    const TestLayout layout{.data = 3};
    for (const int stage : {0, 1, 2, 3}) {
      const std::string name = "straight" + std::to_string(stage);
      run_ranks(layout.ranks(), [&](World& world) {
        ShardedRun run(world, layout, stage, dtype, options);
        for (int number = 1; number <= 4; ++number) {
          run.step(number);
          if (number % 2 == 0) {
            save_checkpoint(run.stored(), run.context(), {dir / name, test::state_of(number), ""});
          }
        }
      });
      check(dir / name / "iter_0000004", stage, "never stopped");
    }
    for (const int stage : {0, 1, 2, 3}) {
      // From the checkpoint of another stage.
      const std::filesystem::path from =
          dir / ("straight" + std::to_string((stage + 1) % 4)) / "iter_0000002";
      const std::string name = "resumed" + std::to_string(stage);
      run_ranks(layout.ranks(), [&](World& world) {
        ShardedRun run(world, layout, stage, dtype, options);
        run.set_values(77);
        load_checkpoint(from, run.stored(), run.context());
        for (int number = 3; number <= 4; ++number) run.step(number);
        save_checkpoint(run.stored(), run.context(), {dir / name, test::state_of(4), ""});
      });
      check(dir / name / "iter_0000004", stage, "stopped and continued");
    }
  }
}

TEST(Resume, NamesAnOptimizerThatIsAnother) {
  const OptimizerOptions sgd{.kind = OptimizerKind::kSgd};
  const OptimizerOptions plain{.kind = OptimizerKind::kSgd, .sgd_momentum = 0};
  const TempFolder dir;
  const auto refusal = [&](const char* name, const OptimizerOptions& saved,
                           const OptimizerOptions& loaded) {
    std::string message;
    run_ranks(1, [&](World& world) {
      ShardedRun from(world, {}, 0, DType::kF32, saved);
      from.step(1);
      const auto folder =
          save_checkpoint(from.stored(), from.context(), {dir / name, test::state_of(1), ""});
      ShardedRun to(world, {}, 0, DType::kF32, loaded);
      message =
          message_of(Fault::kData, [&] { load_checkpoint(folder, to.stored(), to.context()); });
    });
    return message;
  };
  EXPECT_THAT(refusal("a", {}, sgd),
              testing::HasSubstr("got the state of another optimizer (exp_avg, exp_avg_sq), "
                                 "wanted momentum_buffer"));
  EXPECT_THAT(refusal("b", sgd, {}),
              testing::HasSubstr("(momentum_buffer), wanted exp_avg, exp_avg_sq"));
  EXPECT_THAT(refusal("c", sgd, plain), testing::HasSubstr("wanted nothing but weights"));
  EXPECT_THAT(refusal("d", {}, {.first_moment = DType::kBF16}),
              testing::HasSubstr("is fp32, this model has bf16; continue a run in the type"));
}

TEST(Resume, ContinuesOnAnotherNumberOfRanksFromTheSameNumbers) {
  const TempFolder dir;
  run_ranks(4, [&](World& world) {
    ShardedRun run(world, {.tensor = 2, .data = 2}, 3, DType::kBF16);
    run.step(1);
    save_checkpoint(run.stored(), run.context(), {dir / "a", test::state_of(1), ""});
  });
  const auto from = find_checkpoint(dir / "a");
  for (const TestLayout& layout : {TestLayout{.tensor = 4}, TestLayout{.data = 3}, TestLayout{}}) {
    const std::string name = std::to_string(layout.tensor) + std::to_string(layout.data);
    run_ranks(layout.ranks(), [&](World& world) {
      ShardedRun run(world, layout, 1, DType::kBF16);
      load_checkpoint(from, run.stored(), run.context());
      EXPECT_EQ(run.optimizer->steps(), 1);
      save_checkpoint(run.stored(), run.context(), {dir / name, test::state_of(1), ""});
    });
    EXPECT_EQ(weights_hash(dir / name / "iter_0000001"), weights_hash(from));
    EXPECT_EQ(optimizer_hash(dir / name / "iter_0000001"), optimizer_hash(from));
  }
}

}  // namespace
}  // namespace piton
