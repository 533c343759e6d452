#include "comm/mpi/job_record.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>
#include <string>

#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::UnorderedElementsAre;

const LaunchedJob kJob{.number = "1940001", .session = ""};

// A process that does `work`, reports it, and waits until it is killed.
class Rank {
 public:
  explicit Rank(const std::function<void()>& work) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    id_ = ::fork();
    if (id_ == 0) {
      work();
      EXPECT_EQ(::write(ends[1], "x", 1), 1);
      for (;;) ::pause();
    }
    char said = 0;
    EXPECT_EQ(::read(ends[0], &said, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~Rank() { kill(); }
  void kill() {
    if (id_ > 0) {
      ::kill(id_, SIGKILL);
      ::waitpid(id_, nullptr, 0);
    }
    id_ = -1;
  }
  pid_t id() const { return id_; }

 private:
  pid_t id_ = -1;
};

class JobRecords : public testing::Test {
 protected:
  fs::path memory() const { return folder_.path() / "shm"; }
  void SetUp() override {
    fs::create_directories(memory());
    for (const std::string& name : kOwn) put(name);
    for (const std::string& name : kForeign) put(name);
    fs::create_directory(memory() / "vader_segment.host.0.1940001.7");
    fs::create_symlink(memory() / "other", memory() / "osc_sm.host.1940001.0.9");
  }
  void put(const std::string& name) const { std::ofstream(memory() / name) << "bytes"; }
  std::set<std::string> names(const fs::path& folder) const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder)) {
      all.insert(entry.path().filename().string());
    }
    return all;
  }
  // What is there apart from the files that no sweep may touch.
  std::set<std::string> left() const {
    std::set<std::string> all = names(memory());
    for (const std::string& name : kForeign) EXPECT_EQ(all.erase(name), 1U) << name;
    EXPECT_EQ(all.erase("vader_segment.host.0.1940001.7"), 1U) << "a folder";
    EXPECT_EQ(all.erase("osc_sm.host.1940001.0.9"), 1U) << "a link";
    return all;
  }
  // As SIGKILL leaves it.
  void leave_record(const LaunchedJob& job) const {
    Rank rank([&] { new JobRecord(job, memory()); });
    rank.kill();
  }

  const std::string uid_ = std::to_string(::geteuid());
  const std::string record_ = "piton-job." + uid_ + ".1940001";
  const std::set<std::string> kOwn{"vader_segment.my.host." + uid_ + ".1940001.0",
                                   "vader_segment.host." + uid_ + ".1940001.12",
                                   "osc_sm.host.1940001.0.3"};
  const std::set<std::string> kForeign{"other",
                                       "vader_segment.host." + uid_ + ".1940002.0",
                                       "vader_segment.host.77" + uid_ + ".1940001.0",
                                       "vader_segment.host." + uid_ + ".1940001.x",
                                       "osc_sm.host.1940001.3",
                                       "sem.1940001",
                                       "piton-job." + uid_ + ".not-a-number"};
  const TempFolder folder_;
};

TEST_F(JobRecords, WhatKilledRanksLeftIsRemovedAndNothingElse) {
  leave_record(kJob);
  EXPECT_TRUE(left().contains(record_));
  sweep_dead_jobs(memory());
  EXPECT_THAT(left(), UnorderedElementsAre());
}

TEST_F(JobRecords, TheNextJobSweepsAndLeavesNothingItself) {
  leave_record(kJob);
  {
    const JobRecord next({.number = "29090001", .session = ""}, memory());
    EXPECT_THAT(left(), UnorderedElementsAre("piton-job." + uid_ + ".29090001"));
  }
  EXPECT_THAT(left(), UnorderedElementsAre());
}

TEST_F(JobRecords, AJobWithARankThatLivesIsLeftAlone) {
  std::set<std::string> all = kOwn;
  all.insert(record_);
  Rank one([&] { new JobRecord(kJob, memory()); });
  Rank other([&] { new JobRecord(kJob, memory()); });
  sweep_dead_jobs(memory());
  EXPECT_EQ(left(), all);
  one.kill();
  ::kill(other.id(), SIGSTOP);
  sweep_dead_jobs(memory());
  EXPECT_EQ(left(), all);
  other.kill();
  sweep_dead_jobs(memory());
  EXPECT_THAT(left(), UnorderedElementsAre());
}

TEST_F(JobRecords, TheLastRankOfAJobThatEndsRemovesWhatAKilledOneLeft) {
  auto first = std::make_unique<JobRecord>(kJob, memory());
  auto second = std::make_unique<JobRecord>(kJob, memory());
  leave_record(kJob);  // joins them and is killed
  first.reset();
  EXPECT_EQ(left().size(), kOwn.size() + 1);
  second.reset();
  EXPECT_THAT(left(), UnorderedElementsAre());
}

// A job number may come again, and then be one of another program.
TEST_F(JobRecords, AFileThatAProcessMapsStaysUntilItIsGone) {
  const std::string name = *kOwn.begin();
  leave_record(kJob);
  Rank other([&] {
    const int file = ::open((memory() / name).c_str(), O_RDWR);
    ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
  });
  sweep_dead_jobs(memory());
  EXPECT_THAT(left(), UnorderedElementsAre(name, record_));
  other.kill();
  sweep_dead_jobs(memory());
  EXPECT_THAT(left(), UnorderedElementsAre());
}

TEST_F(JobRecords, TheLaunchersFolderGoesOnceTheLauncherIsDead) {
  const fs::path folders = folder_.path() / "ompi.host.0";
  Rank launcher([] {});
  const fs::path session = folders / ("pid." + std::to_string(launcher.id()));
  const fs::path neighbor = folders / "pid.1";
  for (const fs::path& path : {session, neighbor}) {
    fs::create_directories(path / "0");
    std::ofstream(path / "0" / "contact.txt") << "x";
  }
  leave_record({.number = "1940001", .session = session});
  sweep_dead_jobs(memory());
  EXPECT_TRUE(fs::exists(session)) << "the launcher lives and removes it itself";
  leave_record({.number = "1940001", .session = session});
  launcher.kill();
  sweep_dead_jobs(memory());
  EXPECT_FALSE(fs::exists(session));
  EXPECT_TRUE(fs::exists(neighbor));
}

TEST_F(JobRecords, AFolderOfAnyOtherNameOrOfAnotherNamespaceStays) {
  Rank launcher([] {});
  const std::string id = std::to_string(launcher.id());
  const std::string pid = "pid." + id;
  const fs::path elsewhere = folder_.path() / "work" / pid;
  const fs::path contained = folder_.path() / "ompi.host.0" / pid;
  fs::create_directories(elsewhere);
  fs::create_directories(contained);
  launcher.kill();
  leave_record({.number = "1940001", .session = elsewhere});
  std::ofstream(memory() / ("piton-job." + uid_ + ".1940003")) << contained.string() << "\n"
                                                               << id << " 1 pid:[1]\n";
  const std::string space = fs::read_symlink("/proc/self/ns/pid").string();
  std::ofstream(memory() / ("piton-job." + uid_ + ".1940004")) << elsewhere.string() << "\n"
                                                               << id << " 1 " << space << "\n";
  sweep_dead_jobs(memory());
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_TRUE(fs::exists(contained));
  EXPECT_THAT(left(), UnorderedElementsAre());
}

// The first descriptor that is free is then 0, which is no failure.
TEST_F(JobRecords, AreSweptWithoutStandardInput) {
  leave_record(kJob);
  const int input = ::dup(STDIN_FILENO);
  ASSERT_GE(input, 0);
  ::close(STDIN_FILENO);
  sweep_dead_jobs(memory());
  ::dup2(input, STDIN_FILENO);
  ::close(input);
  EXPECT_THAT(left(), UnorderedElementsAre());
}

TEST_F(JobRecords, ALinkInTheRecordsPlaceIsNotFollowed) {
  fs::create_symlink(memory() / "other", memory() / record_);
  { const JobRecord record(kJob, memory()); }
  sweep_dead_jobs(memory());
  std::set<std::string> all = kOwn;
  all.insert(record_);
  EXPECT_EQ(left(), all);
}

TEST_F(JobRecords, WithoutALauncherOrSharedMemoryNothingIsRecorded) {
  { const JobRecord record({}, memory()); }
  { const JobRecord record(kJob, folder_.path() / "none"); }
  EXPECT_EQ(left(), kOwn);
}

}  // namespace
}  // namespace piton
