// The checkpoint from which a run starts. Saving and resuming: trainer_test.cpp.
#include "train/run/checkpoint_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(CheckpointChoice, FollowsFromLoadSaveAndFinetune) {
  const TempFolder folder;
  HostDevice device;
  const auto world = make_single_world(device);
  const test::SmallMachine own(*world);
  test::write_small_corpus(folder / "corpus");
  const std::string run = (folder / "run").string();
  const std::string other = (folder / "other").string();
  {
    Trainer trainer(own.machine(), test::small_options(folder / "corpus", {"--save", run}), {});
    trainer.step();
    trainer.save();
  }
  const fs::path saved = fs::path(run) / "iter_0000001";
  SilentLog log;
  Mesh mesh(*world, MeshSizes{});
  Communicator& everyone = mesh.group(kAllAxes);
  const auto from = [&](const LoopOptions& loop) {
    return CheckpointChoice(loop, everyone, log).folder();
  };
  const auto refusal = [&](const LoopOptions& loop) {
    return message_of(Fault::kUsage, [&] { from(loop); });
  };
  EXPECT_EQ(from({}), "");
  EXPECT_EQ(from({.save = other}), "");
  EXPECT_EQ(from({.load = run}), saved);
  EXPECT_EQ(from({.save = run, .load = run}), saved);
  EXPECT_EQ(from({.save = run, .load = saved.string()}), saved);
  EXPECT_EQ(from({.save = other, .load = run}), saved);
  EXPECT_EQ(from({.save = other, .load = run, .finetune = true}), saved);
  EXPECT_EQ(from({.save = other, .load = other}), "") << "the first start of one to be repeated";
  EXPECT_THAT(refusal({.save = run}), HasSubstr("already holds a run; give --load " + run));
  EXPECT_THAT(refusal({.save = run, .load = run, .finetune = true}),
              HasSubstr("without --finetune"));
  EXPECT_THAT(refusal({.finetune = true}), HasSubstr("--finetune: needs --load DIR"));
  EXPECT_THAT(message_of(Fault::kData, [&] { from({.load = other}); }), HasSubstr(other));
  // Megatron's, without the tracker: not a first start.
  const std::string untracked = (folder / "untracked").string();
  fs::create_directories(untracked);
  fs::copy(PITON_SOURCE_DIR "/tests/golden/megatron/resume/llama", untracked,
           fs::copy_options::recursive);
  fs::remove(fs::path(untracked) / "latest_checkpointed_iteration.txt");
  for (const std::string& save : {untracked, other}) {
    EXPECT_THAT(
        message_of(Fault::kData, [&] { from({.save = save, .load = untracked}); }),
        HasSubstr("of Megatron, and no file latest_checkpointed_iteration.txt or latest that "
                  "names it; load " +
                  untracked + "/iter_"));
  }
}

}  // namespace
}  // namespace piton
