// Three hundred kills during saves, most of them during steps (--async-save): the next start
// resumes every time, and the final weights are those of an undisturbed run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using std::chrono::seconds;

bool saves_now(const fs::path& run) {
  std::error_code ignored;
  for (fs::directory_iterator it(run, ignored), end; !ignored && it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("iter_") && name.ends_with(".tmp")) return true;
  }
  return false;
}

std::vector<std::string> drafts_in(const fs::path& run) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp") != std::string::npos || name.find(".replaced") != std::string::npos) {
      found.push_back(name);
    }
  }
  return found;
}

TEST(KilledSaves, AreFollowedByCleanRestarts) {
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  const std::int64_t end_round = drill::end_round(10, 300);
  int in_a_save = 0;
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round));
    drill::Draw draw(drill::seed(round));
    fs::remove(tiny.path("run.txt"));
    const char* const how = draw.below(3) == 0 ? "--no-async-save" : "--async-save";
    Process process(drill::with_program(tiny.pretrain(
                        "run", 1'000'000,
                        {"--load", tiny.path("run"), how, "--save-interval", "1", "--keep", "2"})),
                    {.out = tiny.path("run.txt")});
    // The first save of this start, or one of the next few.
    for (std::int64_t saves = draw.below(3); saves >= 0; --saves) {
      ASSERT_TRUE(drill::wait_for(process, [&] { return saves_now(tiny.path("run")); }))
          << text_of(tiny.path("run.txt"));
      if (saves > 0) {
        drill::wait_for(process, [&] { return !saves_now(tiny.path("run")); });
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(draw.below(12'000)));
    in_a_save += saves_now(tiny.path("run")) ? 1 : 0;
    process.kill(SIGKILL);
    ASSERT_EQ(process.wait(seconds(20)), (ProcessEnd{.code = -1, .signal = SIGKILL}))
        << text_of(tiny.path("run.txt"));
    if (fs::exists(tiny.path("run/latest_checkpointed_iteration.txt"))) {
      ASSERT_NE(tiny.hash("run"), "") << tiny.shown();
    }
  }
  EXPECT_GT(in_a_save, 0);
  std::istringstream tracker(text_of(tiny.path("run/latest_checkpointed_iteration.txt")));
  int reached = 0;
  ASSERT_TRUE(tracker >> reached);
  // The length of the run is part of the experiment's schedule, so the same options go a bit on.
  const int end = reached + 2;
  const std::string interval = std::to_string(end);
  ASSERT_EQ(tiny.run(tiny.pretrain("run", 1'000'000,
                                   {"--load", tiny.path("run"), "--exit-interval", interval})),
            (ProcessEnd{.code = 0}))
      << tiny.shown();
  EXPECT_THAT(drafts_in(tiny.path("run")), testing::IsEmpty());
  ASSERT_EQ(tiny.run(tiny.pretrain("whole", 1'000'000, {"--exit-interval", interval})),
            (ProcessEnd{.code = 0}))
      << tiny.shown();
  EXPECT_EQ(tiny.hash("run"), tiny.hash("whole"));
  RecordProperty("killed_in_a_save", in_a_save);
}

}  // namespace
}  // namespace piton
