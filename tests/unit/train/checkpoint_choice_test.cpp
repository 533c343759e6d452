// The checkpoint from which a run starts. Saving and resuming: trainer_test.cpp.
#include "train/run/checkpoint_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "checkpoint/store.h"
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

// A run with --keep 1 removes the checkpoint that another one has just chosen.
TEST(CheckpointChoice, TakesWhatAnotherRunHasSavedSince) {
  const TempFolder folder;
  HostDevice device;
  const auto world = make_single_world(device);
  const test::SmallMachine own(*world);
  test::write_small_corpus(folder / "corpus");
  const std::string other = (folder / "other").string();
  Trainer trainer(own.machine(),
                  test::small_options(folder / "corpus", {"--save", other, "--keep", "1"}), {});
  trainer.step();
  trainer.save();
  test::EventSink sink;
  RunSinks notes({&sink}, true);
  const auto everyone = make_group_of_all(*world, "test");
  const LoopOptions loop{.load = other, .finetune = true};
  CheckpointChoice choice(loop, *everyone, notes);
  const fs::path chosen = choice.folder();
  EXPECT_EQ(chosen, fs::path(other) / "iter_0000001");
  const auto fail = [&] {
    try {
      throw Error(Fault::kData, "cannot be read");
    } catch (const Error& error) {
      choice.fall_back(error);
    }
  };
  trainer.step();
  trainer.save();
  ASSERT_FALSE(fs::exists(chosen));
  fail();
  EXPECT_EQ(choice.folder(), fs::path(other) / "iter_0000002");
  EXPECT_TRUE(choice.skipped().empty());
  EXPECT_THAT(sink.messages, testing::ElementsAre(HasSubstr("iter_0000001: its run has saved "
                                                            "iter_0000002 since; loading that")));
  // Nothing else is there now: what is wrong with it is reported.
  EXPECT_EQ(message_of(Fault::kData, fail), "cannot be read");
}

TEST(CheckpointChoice, OfOneThatIsAlwaysReplacedEnds) {
  const TempFolder folder;
  const auto save = [&](int iteration) {
    fs::create_directories(folder / iteration_folder(iteration));
    write_text_file(folder / iteration_folder(iteration) / kManifestName, "{}");
    write_text_file(folder / kTrackerName, fmt::format("{}\n", iteration));
    if (iteration > 1) fs::remove_all(folder / iteration_folder(iteration - 1));
  };
  save(1);
  HostDevice device;
  const auto world = make_single_world(device);
  const auto everyone = make_group_of_all(*world, "test");
  SilentLog log;
  const LoopOptions loop{.load = folder.path().string()};
  CheckpointChoice choice(loop, *everyone, log);
  int times = 0;
  EXPECT_EQ(message_of(Fault::kData,
                       [&] {
                         for (; times < 1000; ++times) {
                           save(times + 2);
                           try {
                             throw Error(Fault::kData, "gone");
                           } catch (const Error& error) {
                             choice.fall_back(error);
                           }
                         }
                       }),
            "gone");
  EXPECT_EQ(times, 20);
}

}  // namespace
}  // namespace piton
