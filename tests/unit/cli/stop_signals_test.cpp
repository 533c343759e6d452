// Each case runs in a separate process, because signals belong to a process.
#include "cli/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace piton::cli {
namespace {

using testing::ExitedWithCode;

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

TEST(StopSignalsDeathTest, EndAtOnceBeforeAPromise) {
  EXPECT_EXIT(
      {
        SilentLog log;
        const StopSignals signals(log);
        end_after(SIGTERM);
      },
      ExitedWithCode(143), "");
}

TEST(StopSignalsDeathTest, EndAtOnceWhenTheyComeAgain) {
  EXPECT_EXIT(
      {
        SilentLog log;
        StopSignals signals(log);
        signals.promise("ending");
        be_asked(SIGTERM, signals);
        end_after(SIGINT);
      },
      ExitedWithCode(130), "");
}

TEST(StopSignalsDeathTest, ChangeNothingOnceWhatTheyAskedForIsDone) {
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

}  // namespace
}  // namespace piton::cli
