// Each case runs in a separate process, because signals belong to a process.
#include "cli/terminal/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "support/no_more_threads.h"

namespace piton::cli {
namespace {

using testing::ExitedWithCode;

// Each process starts from main(): the thread sanitizer lets a fork of this one, which may have
// threads, start none.
class StopSignalsDeathTest : public testing::Test {
 protected:
  StopSignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void be_asked(int number, const StopSignals& signals) {
  ::kill(::getpid(), number);
  while (signals.first() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Long enough for the thread that listens; ends with 7 where no signal has ended the process.
[[noreturn]] void end_after(int number) {
  ::kill(::getpid(), number);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::_Exit(7);
}

// Says what it logs to standard error.
class LoudLog final : public Log {
 public:
  void write(LogLevel, std::string_view line) override {
    std::fprintf(stderr, "%s\n", std::string(line).c_str());
  }
};

TEST_F(StopSignalsDeathTest, EndAtOnceBeforeAPromise) {
  EXPECT_EXIT(
      {
        SilentLog log;
        const StopSignals signals(log);
        end_after(SIGTERM);
      },
      ExitedWithCode(143), "");
}

TEST_F(StopSignalsDeathTest, EndAtOnceWhenTheyComeAgain) {
  EXPECT_EXIT(
      {
        SilentLog log;
        StopSignals signals(log);
        signals.promise("ending");
        be_asked(SIGTERM, signals);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        end_after(SIGINT);
      },
      ExitedWithCode(130), "");
}

TEST_F(StopSignalsDeathTest, OfTimeoutWhichSendsEachTwiceAreOneRequest) {
  EXPECT_EXIT(
      {
        SilentLog log;
        StopSignals signals(log);
        signals.promise("ending");
        be_asked(SIGTERM, signals);
        end_after(SIGTERM);
      },
      ExitedWithCode(7), "");
}

TEST_F(StopSignalsDeathTest, OfAClosedTerminalAskOnceMoreOrLess) {
  EXPECT_EXIT(
      {
        LoudLog log;
        StopSignals signals(log);
        signals.promise("ending");
        be_asked(SIGHUP, signals);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        end_after(SIGHUP);
      },
      ExitedWithCode(7), "SIGHUP: ending");
}

TEST_F(StopSignalsDeathTest, LeaveAHangupIgnoredUnderNohup) {
  EXPECT_EXIT(
      {
        SilentLog log;
        ::signal(SIGHUP, SIG_IGN);
        StopSignals signals(log);
        end_after(SIGHUP);
      },
      ExitedWithCode(7), "");
}

TEST_F(StopSignalsDeathTest, ChangeNothingOnceWhatTheyAskedForIsDone) {
  for (const bool asked : {true, false}) {
    EXPECT_EXIT(
        {
          SilentLog log;
          StopSignals signals(log);
          signals.promise("ending");
          if (asked) be_asked(SIGTERM, signals);
          signals.settle();
          end_after(SIGTERM);
        },
        ExitedWithCode(7), "");
  }
}

TEST_F(StopSignalsDeathTest, StopTheRunInOrderThoughTheSystemHasNoThreadLeft) {
  EXPECT_EXIT(
      {
        LoudLog log;
        std::optional<test::NoMoreThreads> none;  // until those that listen are gone
        {
          StopSignals signals(log);
          signals.promise("ending");
          none.emplace();
          be_asked(SIGTERM, signals);
        }
        std::_Exit(7);
      },
      ExitedWithCode(7), "SIGTERM: ending");
}

}  // namespace
}  // namespace piton::cli
