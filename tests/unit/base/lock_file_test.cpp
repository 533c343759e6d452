#include "base/files/lock_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

const LockRules kByFile{.kernel_locks = false, .touched_every = 20ms, .stale_after = 200ms};

class LockFileOf : public testing::TestWithParam<bool> {
 protected:
  LockRules rules() const { return GetParam() ? LockRules{} : kByFile; }
};
INSTANTIATE_TEST_SUITE_P(BothKinds, LockFileOf, testing::Values(true, false));

// A process that takes the lock, reports it through a pipe, and waits to be killed.
pid_t holder(const std::filesystem::path& path, const LockRules& rules) {
  int ready[2];
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const LockFile lock(path, "test", rules);
    (void)!::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

TEST_P(LockFileOf, OneWriterTellsTheSecondWhoHoldsIt) {
  const TempFolder dir;
  const auto path = dir / "run.lock";
  {
    const LockFile first(path, "--save: a", rules());
    EXPECT_FALSE(first.predecessor());
    const std::string message =
        message_of(Fault::kUsage, [&] { LockFile second(path, "--save: a", rules()); });
    EXPECT_THAT(message, HasSubstr(fmt::format("--save: a: in use by process {} on ", ::getpid())));
    EXPECT_THAT(message, HasSubstr(" UTC (lock "));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "released, and no trace";
  const LockFile again(path, "--save: a", rules());
}

TEST_P(LockFileOf, ASecondWriterMayWaitForTheFirst) {
  const TempFolder dir;
  const auto path = dir / "run.lock";
  auto first = std::make_unique<LockFile>(path, "x", rules());
  LockRules waiting = rules();
  waiting.looked_every = 1ms;
  int looks = 0;
  waiting.waits = [&](const std::optional<LockOwner>& owner) {
    EXPECT_EQ(owner->process, ::getpid());
    if (++looks == 150) first.reset();  // more often than a lock that nobody holds is tried
    return true;
  };
  const LockFile second(path, "x", waiting);
  EXPECT_EQ(looks, 150);
  EXPECT_FALSE(second.predecessor()) << "the first one has released it";
  waiting.waits = [&](const std::optional<LockOwner>&) { return --looks > 0; };
  EXPECT_THAT(message_of(Fault::kUsage, [&] { LockFile third(path, "x", waiting); }),
              HasSubstr(fmt::format("in use by process {} on ", ::getpid())));
  EXPECT_EQ(looks, 0);
}

TEST_P(LockFileOf, AKilledProcessIsNotWaitedFor) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "forks";
  const TempFolder dir;
  const auto path = dir / "run.lock";
  const pid_t child = holder(path, rules());
  LockRules waiting = rules();
  waiting.waits = [&](const std::optional<LockOwner>& owner) {
    EXPECT_EQ(owner->process, child);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return true;
  };
  const LockFile lock(path, "x", waiting);
  EXPECT_EQ(lock.predecessor()->process, child);
}

TEST_P(LockFileOf, AKilledProcessIsFreeAndIsNamed) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "forks";
  const TempFolder dir;
  const auto path = dir / "run.lock";
  const pid_t child = holder(path, rules());
  EXPECT_THAT(message_of(Fault::kUsage, [&] { LockFile lock(path, "x", rules()); }),
              HasSubstr(fmt::format("process {} ", child)));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  // Before another owner is named, so that being killed here loses nothing.
  std::vector<std::int64_t> cleaned;
  const LockFile lock(path, "x", rules(), [&](const LockOwner& killed) {
    cleaned.push_back(killed.process);
    if (GetParam()) {
      EXPECT_THAT(read_text_file(path), HasSubstr(std::to_string(child)));
    }
  });
  EXPECT_EQ(cleaned, std::vector<std::int64_t>{child});
  ASSERT_TRUE(lock.predecessor());
  EXPECT_EQ(lock.predecessor()->process, child);
}

TEST(LockFileByFile, OfAnotherHostIsTakenWhenItIsNoLongerTouched) {
  const TempFolder dir;
  const auto path = dir / "run.lock";
  write_text_file(path, "elsewhere\n77\n2026-01-01 00:00:00 UTC\n");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { LockFile lock(path, "x", kByFile); }),
              HasSubstr("process 77 on elsewhere, since 2026-01-01"));
  std::this_thread::sleep_for(300ms);
  {
    const LockFile lock(path, "x", kByFile);
    ASSERT_TRUE(lock.predecessor());
    EXPECT_EQ(lock.predecessor()->host, "elsewhere");
    // The owner touches its lock, however long it works.
    std::this_thread::sleep_for(400ms);
    EXPECT_THAT(message_of(Fault::kUsage, [&] { LockFile other(path, "x", kByFile); }),
                HasSubstr("in use by"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST_P(LockFileOf, DoesNotFollowALinkAndKeepsOtherFiles) {
  const TempFolder dir;
  write_text_file(dir / "precious", "text");
  std::filesystem::create_symlink(dir / "precious", dir / "run.lock");
  EXPECT_THROW(LockFile(dir / "run.lock", "x", rules()), Error);
  EXPECT_EQ(read_text_file(dir / "precious"), "text");
}

TEST_P(LockFileOf, LeavesAFileOfSomebodyElseAlone) {
  const TempFolder dir;
  write_text_file(dir / "run.lock", "my notes");
  EXPECT_THROW(LockFile(dir / "run.lock", "x", rules()), Error);
  EXPECT_EQ(read_text_file(dir / "run.lock"), "my notes");
}

TEST_P(LockFileOf, IsOneWritersWhoeverComesFirst) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "forks";
  const TempFolder dir;
  const auto path = dir / "run.lock";
  for (int round = 0; round < 20; ++round) {
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        int code = 1;
        try {
          const LockFile lock(path, "x", rules());
          // Whoever is inside makes a file that must not be there yet.
          const auto inside = dir / "inside";
          const int file = ::open(inside.c_str(), O_CREAT | O_EXCL, 0600);
          if (file < 0) ::_exit(9);
          ::usleep(2000);
          ::close(file);
          ::unlink(inside.c_str());
          code = 0;
        } catch (const Error&) {
        }
        ::_exit(code);
      }
      children.push_back(child);
    }
    int entered = 0;
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_NE(WEXITSTATUS(status), 9) << "two were inside at once";
      entered += WEXITSTATUS(status) == 0 ? 1 : 0;
    }
    EXPECT_GE(entered, 1);
  }
}

}  // namespace
}  // namespace piton
