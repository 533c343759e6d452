// Saving and preprocessing on a file system of nine megabytes: existing files stay whole, failed
// writes are tried again, and finished work is not lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using std::chrono::seconds;
using testing::HasSubstr;

class SmallDisk {
 public:
  explicit SmallDisk(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    mounted_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=9m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  fs::path operator/(const std::string& name) const { return folder_ / name; }
  std::int64_t free() const { return static_cast<std::int64_t>(fs::space(folder_).available); }
  // Leaves so many bytes free.
  void fill(std::int64_t left) const {
    fs::remove(folder_ / "filler");
    const std::int64_t bytes = free() - left;
    if (bytes <= 0) return;
    std::ofstream filler(folder_ / "filler", std::ios::binary);
    const std::string block(1 << 12, 'x');
    for (std::int64_t at = 0; at < bytes; at += 1 << 12) filler << block;
  }
  void empty() const { fs::remove(folder_ / "filler"); }

 private:
  fs::path folder_;
  bool mounted_ = false;
};

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_.mounted()) GTEST_SKIP() << "a file system cannot be mounted here";
  }
  const TempFolder folder_;
  const SmallDisk disk_{folder_ / "small"};
  const TinyRun tiny_{folder_.path()};
};

TEST_F(DiskFull, AtASaveLeavesTheCheckpointBeforeOrTheNewOne) {
  const std::int64_t end_round = drill::end_round(5, 100);
  int failed = 0, passed = 0;
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round));
    drill::Draw draw(drill::seed(round));
    fs::remove_all(disk_ / "run");
    disk_.empty();
    ASSERT_EQ(tiny_.run(tiny_.pretrain("small/run", 6, {"--exit-interval", "2"})),
              (ProcessEnd{.code = 0}))
        << tiny_.shown();
    const std::string before = tiny_.hash("small/run");
    disk_.fill(draw.below(3 << 20));
    const ProcessEnd end = tiny_.run(tiny_.pretrain(
        "small/run", 6, {"--load", tiny_.path("small/run"), "--save-interval", "1"}));
    const std::string shown = tiny_.shown();
    EXPECT_TRUE(end.code == 0 || end.code == 3) << to_string(end) << shown;
    if (end.code != 0) {
      EXPECT_TRUE(shown.find("disk") != std::string::npos ||
                  shown.find("No space left") != std::string::npos)
          << shown;
    }
    ++(end.code == 0 ? passed : failed);
    const std::string after = tiny_.hash("small/run");
    EXPECT_NE(after, "") << "the checkpoint before is gone";
    // With room again it goes to its end.
    disk_.empty();
    ASSERT_EQ(tiny_.run(tiny_.pretrain("small/run", 6,
                                       {"--load", tiny_.path("small/run"), "--keep", "2"})),
              (ProcessEnd{.code = 0}))
        << tiny_.shown();
    EXPECT_NE(tiny_.hash("small/run"), before);
  }
  EXPECT_GT(failed, 0) << passed << " runs had room enough";
}

TEST_F(DiskFull, BetweenTheLastSavesIsWarnedOfAndTriedAgain) {
  const int iterations = drill::whole() ? 400 : 120;
  Process process(drill::with_program(tiny_.pretrain("small/run", iterations,
                                                     {"--save-interval", "5", "--keep", "1"})),
                  {.out = tiny_.path("run.txt")});
  ASSERT_TRUE(drill::wait_for(process, [&] { return fs::exists(disk_ / "run/iter_0000005"); }));
  disk_.fill(100'000);
  EXPECT_TRUE(drill::wait_for(process, [&] {
    return text_of(tiny_.path("run.txt")).find("is not saved: ") != std::string::npos;
  }));
  disk_.empty();
  EXPECT_EQ(process.wait(seconds(120)), (ProcessEnd{.code = 0})) << text_of(tiny_.path("run.txt"));
  const std::string shown = text_of(tiny_.path("run.txt"));
  EXPECT_THAT(shown, HasSubstr("the run continues and saves again at iteration "));
  ASSERT_EQ(tiny_.run(tiny_.pretrain("whole", iterations)), (ProcessEnd{.code = 0}));
  EXPECT_EQ(tiny_.hash("small/run"), tiny_.hash("whole"));
  std::int64_t lines = 0;
  std::ifstream metrics(disk_ / "run/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    EXPECT_TRUE(line.starts_with("{\"iteration\":" + std::to_string(++lines) + ",")) << line;
  }
  EXPECT_EQ(lines, iterations) << "no line is lost, none is cut";
}

TEST_F(DiskFull, IsNoticedBeforeTheFirstStep) {
  disk_.fill(200'000);
  EXPECT_EQ(tiny_.run(tiny_.pretrain("small/run", 1000)), (ProcessEnd{.code = 3}));
  EXPECT_THAT(tiny_.shown(), HasSubstr("not enough disk space: got "));
  EXPECT_EQ(tiny_.shown().find("iteration        1/"), std::string::npos) << "a step was made";
}

TEST_F(DiskFull, AtPreprocessKeepsWhatIsDoneAndTheSameCommandGoesOn) {
  const TinyRun large(folder_ / "large", 50'000);  // 1.3 MB of text, up to 6 MB while it works
  const std::string bytes = text_of(large.corpus() + ".bin") + text_of(large.corpus() + ".idx");
  const std::int64_t end_round = drill::end_round(4, 60);
  int failed = 0, went_on = 0;
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round));
    drill::Draw draw(drill::seed(round));
    disk_.empty();
    for (const auto& entry : fs::directory_iterator(disk_ / "")) fs::remove_all(entry.path());
    drill::Words words = large.preprocess("out");
    *(std::ranges::find(words, "--output-prefix") + 1) = (disk_ / "out").string();
    if (draw.below(2) == 0) words.push_back("--remove-duplicates");
    disk_.fill(draw.below(5 << 20));
    const ProcessEnd end = tiny_.run(words);
    EXPECT_TRUE(end.code == 0 || end.code == 3) << to_string(end) << tiny_.shown();
    if (end.code == 3) {
      ++failed;
      EXPECT_THAT(tiny_.shown(), HasSubstr("No space left on device"));
      EXPECT_FALSE(fs::exists(disk_ / "out_text_document.idx")) << "half a corpus looks whole";
      disk_.empty();
      EXPECT_EQ(tiny_.run(words), (ProcessEnd{.code = 0})) << tiny_.shown();
      went_on += tiny_.shown().find("continuing after ") != std::string::npos ? 1 : 0;
    }
    EXPECT_TRUE(text_of(disk_ / "out_text_document.bin") +
                    text_of(disk_ / "out_text_document.idx") ==
                bytes)
        << tiny_.shown();
    EXPECT_FALSE(fs::exists(disk_ / "out.preprocess.json"));
  }
  EXPECT_GT(failed, 0);
  if (end_round - drill::first_round() > 20) {
    EXPECT_GT(went_on, 0);
  }
}

}  // namespace
}  // namespace piton
