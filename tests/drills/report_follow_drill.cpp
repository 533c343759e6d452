// `piton report --follow` during a run: it writes the page again while the run is active, the page
// reloads itself, and both end with the run.
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <string>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

constexpr const char* kReload = "http-equiv=\"refresh\"";

TEST(FollowedReport, IsWrittenAgainUntilTheRunEnds) {
  const TempFolder folder;
  make_corpus(folder.path());
  const std::filesystem::path to = folder / "run";
  Process::Settings settings;
  settings.out = folder / "run.log";
  Process training(
      with_program(pretrain(folder.path()) + Words{"--seq-length", "16", "--train-iters", "1000000",
                                                   "--lr", "1e-3", "--save", to.string()}),
      settings);
  ASSERT_TRUE(wait_for([&] { return lines_of(to / "metrics.jsonl") > 0; }))
      << text_of(settings.out);
  settings.out = folder / "report.log";
  Process report(with_program({"report", to.string(), "--follow", "--every", "1"}), settings);

  // "712 of 1000000": what the page says of the run's iteration.
  std::set<std::string> states;
  const auto page = [&] { return text_of(to / "report.html"); };
  ASSERT_TRUE(wait_for([&] {
    const std::string text = page();
    const std::size_t end = text.find(" of 1000000");
    if (end == std::string::npos) return false;
    const std::size_t begin = text.find_last_not_of("0123456789", end - 1) + 1;
    states.insert(text.substr(begin, end - begin));
    EXPECT_NE(text.find("</html>"), std::string::npos) << "half a page";
    return states.size() >= 3;
  })) << text_of(settings.out);
  EXPECT_NE(page().find(kReload), std::string::npos);
  EXPECT_TRUE(training.running());
  EXPECT_TRUE(report.running());

  training.kill(SIGTERM);
  EXPECT_TRUE(training.wait(std::chrono::seconds(60)).has_value());
  EXPECT_EQ(report.wait(std::chrono::seconds(60)), (ProcessEnd{.code = 0, .signal = 0}));
  EXPECT_EQ(page().find(kReload), std::string::npos);
  EXPECT_NE(page().find(std::to_string(latest(to)) + " of 1000000"), std::string::npos);
}

}  // namespace
}  // namespace piton::drill
