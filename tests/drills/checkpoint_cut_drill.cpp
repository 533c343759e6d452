// Another program truncates a checkpoint's file at any moment while it is loaded: the load
// succeeds, or ends in an error that names the file. Never a signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "checkpoint/store.h"
#include "drills/drill.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

TEST(CutFiles, EndALoadInAnErrorOrNotAtAll) {
  const TempFolder dir;
  test::run_ranks(1, [&](World& world) {
    test::SmallRun run(world, {}, {.ffn = 40'000});  // 4 MB of values, 12 with the moments
    run.fill(10);
    save_checkpoint(run.stored(), run.context(), {dir / "whole", test::state_of(7), ""});
    const auto start = Clock::now();
    load_checkpoint(find_checkpoint(dir / "whole"), run.stored(), run.context());
    const std::chrono::duration<double> usual = Clock::now() - start;

    const std::int64_t rounds = drill::rounds(60, 2000);
    std::int64_t refused = 0;
    for (std::int64_t round = 0; round < rounds; ++round) {
      drill::Draw draw(drill::seed(round));
      fs::remove_all(dir / "cut");
      fs::copy(dir / "whole", dir / "cut", fs::copy_options::recursive);
      const fs::path file =
          dir / "cut" / "iter_0000007" /
          (draw.below(2) == 0 ? "model-00001.safetensors" : "optimizer-00001.safetensors");
      const std::int64_t bytes = draw.below(static_cast<std::int64_t>(fs::file_size(file)));
      const std::chrono::duration<double> wait(draw.between(0, 1.2 * usual.count()));
      std::thread cutter([&] {
        std::this_thread::sleep_for(wait);
        fs::resize_file(file, static_cast<std::uintmax_t>(bytes));
      });
      std::string message;
      try {
        load_checkpoint(find_checkpoint(dir / "cut"), run.stored(), run.context());
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::kData);
        message = error.what();
      }
      cutter.join();
      if (message.empty()) {
        EXPECT_EQ(run.differences(10), 0) << "seed " << drill::seed(round);
      } else {
        ++refused;
        EXPECT_THAT(message, testing::HasSubstr(file.filename().string()))
            << "seed " << drill::seed(round);
      }
    }
    EXPECT_GT(refused, rounds / 10);
  });
}

}  // namespace
}  // namespace piton
