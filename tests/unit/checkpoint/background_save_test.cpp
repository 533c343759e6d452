// Saves whose files are written while training continues: the same bytes as of a save that training
// waits for, on any ranks; failures reach all ranks.
#include "checkpoint/background_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/no_more_threads.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/sharded_run.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::run_ranks;
using test::ShardedRun;
using test::SmallRun;
using test::state_of;
using test::TestLayout;
using testing::HasSubstr;

// All files below `folder`, with their bytes.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[fs::relative(entry.path(), folder).string()] = read_text_file(entry.path());
    }
  }
  return files;
}

// Of one rank: lets a save continue when asked to.
class Gate {
 public:
  void open() { opens_.set_value(); }
  DiskHook hook() {
    return [this](std::string_view, const fs::path&) { open_.wait(); };
  }

 private:
  std::promise<void> opens_;
  std::shared_future<void> open_ = opens_.get_future().share();
};

TEST(BackgroundSave, WritesTheBytesOfItsStepWhileTheNextOnesAreMade) {
  const TestLayout layout{.data = 2};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int stage : test::sampled<int>({0, 1, 2, 3}, 2, dtype == DType::kF32 ? 0 : 1)) {
      SCOPED_TRACE(testing::Message() << "ZeRO " << stage << ", " << name(dtype));
      const TempFolder dir;
      run_ranks(layout.ranks(), [&](World& world) {
        ShardedRun run(world, layout, stage, dtype);
        ThreadPool pool(2);
        Gate gate;
        SaveCopy copy(run.device);
        EXPECT_TRUE(copy.prepare(run.stored(), run.context(), {}, pool));
        const std::int64_t prepared = copy.bytes();
        run.step(1);
        save_checkpoint(run.stored(), run.context(), {dir / "waited", state_of(1), "a = 1"});
        const auto save = BackgroundSave::start(
            run.stored(), run.context(),
            {dir / "background", state_of(1), "a = 1", {.hook = gate.hook()}}, copy, pool);
        ASSERT_NE(save, nullptr);
        for (int number = 2; number <= 4; ++number) run.step(number);
        EXPECT_FALSE(save->over());
        gate.open();
        EXPECT_EQ(save->wait(), dir / "background/iter_0000001");
        EXPECT_TRUE(save->over());
        EXPECT_EQ(copy.bytes(), prepared);
        // The memory serves again, and a save that training waits for may follow.
        BackgroundSave::start(run.stored(), run.context(),
                              {dir / "background", state_of(4), "", {}}, copy, pool)
            ->wait();
        save_checkpoint(run.stored(), run.context(), {dir / "after", state_of(4), ""});
      });
      EXPECT_EQ(contents(dir / "background/iter_0000001"), contents(dir / "waited/iter_0000001"));
      EXPECT_EQ(contents(dir / "background/iter_0000004"), contents(dir / "after/iter_0000004"));
      EXPECT_NE(weights_hash(dir / "waited/iter_0000001"),
                weights_hash(dir / "after/iter_0000004"));
    }
  }
}

TEST(BackgroundSave, IsTheSameUnderTensorAndPipelineRanks) {
  const TestLayout layout{.tensor = 2, .pipeline = 2};
  const TempFolder dir;
  run_ranks(layout.ranks(), [&](World& world) {
    SmallRun run(world, layout);
    ThreadPool pool(2);
    Gate gate;
    SaveCopy copy(run.device);
    run.fill(5);
    save_checkpoint(run.stored(), run.context(), {dir / "waited", state_of(1), ""});
    const auto save = BackgroundSave::start(
        run.stored(), run.context(), {dir / "background", state_of(1), "", {.hook = gate.hook()}},
        copy, pool);
    run.fill(6);
    gate.open();
    save->wait();
  });
  EXPECT_EQ(contents(dir / "background"), contents(dir / "waited"));
}

TEST(BackgroundSave, FailsOnAllRanksAndKeepsTheOneBefore) {
  const TempFolder dir;
  const TestLayout layout{.tensor = 2, .data = 2};
  std::vector<std::string> messages(4);
  run_ranks(4, [&](World& world) {
    SmallRun run(world, layout);
    ThreadPool pool(2);
    SaveCopy copy(run.device);
    run.fill(1);
    save_checkpoint(run.stored(), run.context(), {dir.path(), state_of(1), ""});
    SaveOptions options;
    if (world.rank() == 2) {
      options.hook = [](std::string_view call, const fs::path& path) {
        if (call == "write") {
          throw Error(Fault::kData, "checkpoint: {}: cannot write: the disk is full",
                      path.string());
        }
      };
    }
    run.fill(2);
    const auto save = BackgroundSave::start(run.stored(), run.context(),
                                            {dir.path(), state_of(2), "", options}, copy, pool);
    messages[static_cast<std::size_t>(world.rank())] =
        message_of(Fault::kData, [&] { save->wait(); });
    load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context());
    EXPECT_EQ(run.differences(1), 0);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const std::string& message = messages[static_cast<std::size_t>(rank)];
    EXPECT_THAT(message, HasSubstr("cannot write: the disk is full"));
    EXPECT_EQ(message.starts_with("[rank 2] "), rank != 2) << message;
  }
  EXPECT_FALSE(fs::exists(dir / "iter_0000002.tmp")) << "the space must come back at once";
}

TEST(BackgroundSave, IsNotBegunWhereOneRankHasNoMemoryForTheCopy) {
  const TempFolder dir;
  const TestLayout layout{.data = 2};
  run_ranks(2, [&](World& world) {
    ShardedRun run(world, layout, 1, DType::kF32);
    ThreadPool pool(2);
    HostDevice small("small", world.rank() == 1 ? 1000 : 0);
    SaveCopy copy(small);
    EXPECT_EQ(BackgroundSave::start(run.stored(), run.context(), {dir / "run", state_of(1), "", {}},
                                    copy, pool),
              nullptr);
    EXPECT_EQ(copy.bytes(), 0);
    EXPECT_FALSE(copy.prepare(run.stored(), run.context(), {}, pool));
    save_checkpoint(run.stored(), run.context(), {dir / "run", state_of(1), ""});
  });
  EXPECT_EQ(latest_iteration(dir / "run"), 1);
}

TEST(BackgroundSave, ThatGetsNoThreadSaysWhatToDoAndWritesNothing) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    ThreadPool pool(2);
    SaveCopy copy(run.device);
    run.fill(3);
    const std::string message = message_of(Fault::kMemory, [&] {
      const test::NoMoreThreads none;
      BackgroundSave::start(run.stored(), run.context(), {dir.path(), state_of(3), "", {}}, copy,
                            pool);
    });
    EXPECT_THAT(message, HasSubstr("refused a thread for the save"));
    EXPECT_THAT(message, HasSubstr("--no-async-save"));
  });
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(BackgroundSave, EndsWithoutBeingWaitedFor) {
  const TempFolder dir;
  run_ranks(1, [&](World& world) {
    SmallRun run(world, {});
    ThreadPool pool(2);
    SaveCopy copy(run.device);
    run.fill(3);
    static_cast<void>(BackgroundSave::start(run.stored(), run.context(),
                                            {dir.path(), state_of(3), "", {}}, copy, pool));
    EXPECT_EQ(latest_iteration(dir.path()), 3);
  });
}

}  // namespace
}  // namespace piton
