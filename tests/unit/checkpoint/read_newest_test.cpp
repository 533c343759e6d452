#include "checkpoint/read_newest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

// A run that keeps one checkpoint.
class RunThatKeepsOne {
 public:
  RunThatKeepsOne() { save(1); }
  void save(int iteration) {
    const fs::path folder = dir_ / iteration_folder(iteration);
    fs::create_directory(folder);
    write_text_file(folder / kManifestName, "{}");
    fs::remove(dir_ / kTrackerName);
    write_text_file(dir_ / kTrackerName, fmt::format("{}\n", iteration));
    if (iteration > 1) fs::remove_all(dir_ / iteration_folder(iteration - 1));
  }
  const fs::path& path() const { return dir_.path(); }

  // Reads the run. Before the readings number 1 to `saves` are complete, the run saves again.
  void read(int saves, const fs::path& from) {
    read_newest(from, [&](const fs::path& folder) {
      folders.push_back(folder.filename().string());
      const int times = static_cast<int>(folders.size());
      if (times <= saves) save(times + 1);
      if (!fs::exists(folder / kManifestName)) throw Error(Fault::kData, "no manifest");
    });
  }
  void read(int saves) { read(saves, path()); }

  std::vector<std::string> folders;  // that were read

 private:
  TempFolder dir_;
};

TEST(ReadNewest, ReadsAgainWhatTheRunReplaced) {
  RunThatKeepsOne run;
  run.read(3);
  EXPECT_THAT(run.folders,
              ElementsAre("iter_0000001", "iter_0000002", "iter_0000003", "iter_0000004"));
}

TEST(ReadNewest, ReportsARunThatIsAlwaysFaster) {
  RunThatKeepsOne run;
  EXPECT_EQ(message_of(Fault::kData, [&] { run.read(1000); }), "no manifest");
}

TEST(ReadNewest, ReportsDamageOfTheNewestAndOfANamedCheckpoint) {
  RunThatKeepsOne run;
  int times = 0;
  const auto fails = [&](Fault fault) {
    return [&times, fault](const fs::path&) {
      ++times;
      throw Error(fault, "wrong");
    };
  };
  EXPECT_EQ(message_of(Fault::kData, [&] { read_newest(run.path(), fails(Fault::kData)); }),
            "wrong");
  EXPECT_EQ(times, 1);
  const fs::path named = run.path() / iteration_folder(1);
  message_of(Fault::kData, [&] { run.read(1, named); });
  EXPECT_THAT(run.folders, ElementsAre("iter_0000001"));
}

TEST(ReadNewest, DoesNotRepeatWrongUse) {
  RunThatKeepsOne run;
  int times = 0;
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         read_newest(run.path(), [&](const fs::path&) {
                           ++times;
                           run.save(2);
                           throw Error(Fault::kUsage, "wrong");
                         });
                       }),
            "wrong");
  EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace piton
