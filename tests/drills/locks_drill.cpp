// Two equal commands at once on one output: exactly one continues, and its output is whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using drill::Words;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

struct Both {
  ProcessEnd ends[2];
  std::string shown[2];
  int succeeded() const {
    return static_cast<int>(ends[0].code == 0) + static_cast<int>(ends[1].code == 0);
  }
};

// The second starts within the first one's time, drawn.
Both at_once(const TinyRun& tiny, const Words& words, drill::Draw& draw) {
  Both both;
  for (const char* name : {"one.txt", "two.txt"}) fs::remove(tiny.path(name));
  Process one(drill::with_program(words), {.out = tiny.path("one.txt")});
  std::this_thread::sleep_for(milliseconds(draw.below(2) == 0 ? 0 : draw.below(60)));
  Process two(drill::with_program(words), {.out = tiny.path("two.txt")});
  both.ends[0] = one.wait(seconds(120)).value_or(ProcessEnd{});
  both.ends[1] = two.wait(seconds(120)).value_or(ProcessEnd{});
  both.shown[0] = text_of(tiny.path("one.txt"));
  both.shown[1] = text_of(tiny.path("two.txt"));
  return both;
}

// The one that gave up said why, with exit code 2.
void expect_one(const Both& both, const std::string& other_reason) {
  EXPECT_EQ(both.succeeded(), 1) << both.shown[0] << both.shown[1];
  for (int i = 0; i < 2; ++i) {
    if (both.ends[i].code == 0) continue;
    EXPECT_EQ(both.ends[i], (ProcessEnd{.code = 2})) << both.shown[i];
    EXPECT_THAT(both.shown[i], AnyOf(HasSubstr("in use by process "), HasSubstr("in use by "),
                                     HasSubstr(other_reason)));
  }
}

std::vector<std::int64_t> iterations_in(const fs::path& metrics) {
  std::vector<std::int64_t> found;
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    found.push_back(read_json<nlohmann::json>(line)["iteration"].get<std::int64_t>());
  }
  return found;
}

TEST(TwoAtOnce, OneGoesOnAndItsOutputsAreWhole) {
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  constexpr int kIterations = 12;
  std::vector<std::int64_t> all;
  for (int i = 1; i <= kIterations; ++i) all.push_back(i);
  ASSERT_EQ(tiny.run(tiny.pretrain("whole", kIterations)), (ProcessEnd{.code = 0}));
  const std::string wanted = tiny.hash("whole");
  const std::string bytes = text_of(tiny.corpus() + ".bin") + text_of(tiny.corpus() + ".idx");

  const std::int64_t end_round = drill::end_round(3, 50);
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round));
    drill::Draw draw(drill::seed(round));
    // Two savers.
    fs::remove_all(tiny.path("run"));
    expect_one(at_once(tiny, tiny.pretrain("run", kIterations, {"--save-interval", "2"}), draw),
               "already holds a run");
    EXPECT_EQ(tiny.hash("run"), wanted);
    EXPECT_EQ(iterations_in(tiny.path("run/metrics.jsonl")), all);
    EXPECT_FALSE(fs::exists(tiny.path("run/run.lock")));
    EXPECT_FALSE(fs::exists(tiny.path("run/failure.json"))) << "the other one's failure";
    // Two resumes; one that comes late finds nothing left to do.
    fs::remove_all(tiny.path("run"));
    ASSERT_EQ(tiny.run(tiny.pretrain("run", kIterations, {"--exit-interval", "3"})),
              (ProcessEnd{.code = 0}));
    const Both resumes =
        at_once(tiny, tiny.pretrain("run", kIterations, {"--load", tiny.path("run")}), draw);
    if (resumes.succeeded() == 2) {
      EXPECT_TRUE((resumes.shown[0].find("iteration 12, ") != std::string::npos) !=
                  (resumes.shown[1].find("iteration 12, ") != std::string::npos))
          << resumes.shown[0] << resumes.shown[1];
    } else {
      expect_one(resumes, "in use");
    }
    EXPECT_EQ(tiny.hash("run"), wanted);
    EXPECT_EQ(iterations_in(tiny.path("run/metrics.jsonl")), all);
    // Two of preprocess.
    for (const char* ending : {".bin", ".idx"}) {
      fs::remove(tiny.path("out_text_document") + ending);
    }
    expect_one(at_once(tiny, tiny.preprocess("out"), draw), "is there already");
    EXPECT_TRUE(text_of(tiny.path("out_text_document.bin")) +
                    text_of(tiny.path("out_text_document.idx")) ==
                bytes);
    EXPECT_FALSE(fs::exists(tiny.path("out.preprocess.lock")));
  }
}

TEST(Launchers, ThatJoinNobodyAreRefusedBeforeAnythingIsWritten) {
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  const std::string not_joined = "that are not joined";
  // Variables, and a part of the message.
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0"}, not_joined},
      {{"SLURM_NTASKS=2", "SLURM_PROCID=1"}, not_joined},
      {{"PMI_SIZE=2", "PMI_RANK=0"}, not_joined},
      {{"WORLD_SIZE=8", "RANK=3", "LOCAL_RANK=3"}, not_joined},
      {{"WORLD_SIZE=8", "RANK=3", "LOCAL_WORLD_SIZE=8"}, "LOCAL_RANK: got \"\", wanted a number"}};
  for (const auto& [environment, wanted] : cases) {
    EXPECT_EQ(tiny.run(tiny.pretrain("run", 1), environment), (ProcessEnd{.code = 2}))
        << environment[0] << tiny.shown();
    EXPECT_THAT(tiny.shown(), HasSubstr(wanted)) << environment[0];
    EXPECT_FALSE(fs::exists(tiny.path("run"))) << environment[0];
  }
  // A batch script of one process, and one task of one.
  EXPECT_EQ(tiny.run(tiny.pretrain("run", 1), {"SLURM_NTASKS=4", "SLURM_PROCID=0"}),
            (ProcessEnd{.code = 0}))
      << tiny.shown();
  EXPECT_EQ(tiny.run(tiny.pretrain("other", 1),
                     {"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "WORLD_SIZE=1", "RANK=0"}),
            (ProcessEnd{.code = 0}))
      << tiny.shown();
}

}  // namespace
}  // namespace piton
