// ranks: 4
// Several processes write into the same files, and read them under another layout.
#include <filesystem>
#include <thread>

#include "checkpoint/background_save.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"
// After what it needs: it defines main().
#include "ranks/setting.h"

namespace piton::ranks::checkpoint_test {

namespace {

// A folder that rank 0 makes and all ranks know; gone when all have left it.
class SharedFolder {
 public:
  SharedFolder() {
    if (everyone().rank() == 0) own_ = std::make_unique<TempFolder>();
    path_ = everyone().gather_bytes(own_ ? own_->path().string() : "")[0];
  }
  ~SharedFolder() { everyone().barrier(); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::unique_ptr<TempFolder> own_;
  std::filesystem::path path_;
};

const std::vector<test::TestLayout> kLayouts = {
    {.tensor = 4},
    {.data = 4, .shards = true},
    {.tensor = 2, .data = 2},
    {.tensor = 2, .pipeline = 2},
};

TEST(Checkpoint, OfAnyLayoutIsReadByEveryOther) {
  const test::ModelVariant variant{.dtype = DType::kBF16};
  std::string weights;
  for (const test::TestLayout& saved : kLayouts) {
    const SharedFolder dir;
    test::SmallRun run(world(), saved, variant);
    run.fill(9);
    const auto folder =
        save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(9), ""});
    const std::string hash = weights_hash(folder) + optimizer_hash(folder);
    if (weights.empty()) weights = hash;
    EXPECT_EQ(hash, weights);
    for (const test::TestLayout& loaded : kLayouts) {
      test::SmallRun other(world(), loaded, variant);
      load_checkpoint(find_checkpoint(dir.path()), other.stored(), other.context());
      EXPECT_EQ(other.differences(9), 0);
    }
  }
}

TEST(Checkpoint, ThatOneRankCannotWriteFailsOnAllAndKeepsTheOneBefore) {
  const SharedFolder dir;
  test::SmallRun run(world(), {.tensor = 4});
  run.fill(1);
  save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(1), ""});
  SaveOptions failing;
  if (world().rank() == 3) {
    failing.hook = [](std::string_view call, const std::filesystem::path& path) {
      if (call == "write")
        throw Error(Fault::kData, "checkpoint: {}: the disk is full", path.string());
    };
  }
  run.fill(2);
  EXPECT_THROW(
      save_checkpoint(run.stored(), run.context(), {dir.path(), test::state_of(2), "", failing}),
      Error);
  load_checkpoint(find_checkpoint(dir.path()), run.stored(), run.context());
  EXPECT_EQ(run.differences(1), 0);
}

TEST(Checkpoint, IsWrittenWhileTheRanksTalkAboutOtherThings) {
  for (const test::TestLayout& layout : kLayouts) {
    const SharedFolder dir;
    test::SmallRun run(world(), layout);
    ThreadPool pool(2);
    SaveCopy copy(run.device);
    Communicator& step = run.mesh.group(kAllAxes);
    run.fill(3);
    const auto waited =
        save_checkpoint(run.stored(), run.context(), {dir / "waited", test::state_of(3), ""});
    const auto save = BackgroundSave::start(
        run.stored(), run.context(), {dir / "background", test::state_of(3), "", {}}, copy, pool);
    ASSERT_NE(save, nullptr);
    run.fill(4);
    // Collectives of other groups, some of which a slow rank holds up.
    const Tensor numbers = host_tensor(DType::kF32, {100'000});
    for (int round = 0; round < 50; ++round) {
      if (world().rank() == round % 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      step.all_reduce(numbers, Reduction::kSum, *run.stream).wait();
      step.gather_bytes("x");
    }
    const auto folder = save->wait();
    EXPECT_EQ(weights_hash(folder) + optimizer_hash(folder),
              weights_hash(waited) + optimizer_hash(waited));
  }
}

}  // namespace
}  // namespace piton::ranks::checkpoint_test
