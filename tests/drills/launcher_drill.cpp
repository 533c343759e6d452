// piton launch and tools/launch.sh: what signals, a terminal and a closed output do to a job of
// several ranks. Most
// jobs are of a shell script that takes seconds to save, so that the times are the same on every
// machine: three, where mpirun kills after one, at night six, where it kills after three.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "drills/terminal.h"
#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Starts : std::uint8_t { kByPiton, kByMpirun };

class Launcher : public testing::TestWithParam<Starts> {
 protected:
  void SetUp() override {
    if (!whole()) ::setenv("PITON_GRACE_SECONDS", "1", 0);
    // A step of seconds: it ends after a request, never sooner.
    std::ofstream(folder_ / "slow.sh") << "trap 'asked=yes' USR1\necho up\n"
                                          "until [ \"$asked\" ]; do sleep 0.1; done\n"
                                          "for i in $(seq " +
                                              std::to_string(10 * kStep) +
                                              "); do sleep 0.1; done\n"
                                              "echo saved\nexit 75\n";
  }
  // The launcher, its number of ranks, and `words`.
  static Words two(const Words& words) {
    return (GetParam() == Starts::kByPiton ? Words{piton(), "launch"} : Words{launcher()}) +
           Words{"2"} + words;
  }
  static std::string line(const Words& words) {
    std::string text;
    for (const std::string& word : words) text += word + " ";
    return text;
  }
  Words slow() const { return two({"/bin/bash", (folder_ / "slow.sh").string()}); }
  std::string log(const std::string& name) const { return (folder_ / (name + ".log")).string(); }
  std::unique_ptr<Process> start(const std::string& name, const Words& words) const {
    Process::Settings settings;
    settings.out = log(name);
    return std::make_unique<Process>(words, settings);
  }
  static std::int64_t count(const std::string& file, const std::string& line) {
    std::ifstream stream(file);
    std::int64_t lines = 0;
    for (std::string one; std::getline(stream, one);) lines += one == line ? 1 : 0;
    return lines;
  }
  void await_ranks(const std::string& name) const {
    ASSERT_TRUE(wait_for([&] { return count(log(name), "up") == 2; })) << text_of(log(name));
  }

  // In a shell: whether this is rank 0.
  const std::string kIsFirst = "[ ${OMPI_COMM_WORLD_RANK:-$RANK} = 0 ]";
  const TempFolder folder_;
  const int kStep = whole() ? 6 : 3;  // seconds
};

TEST_P(Launcher, WaitsForTheStepAndTheSaveAndPassesTheCodeOn) {
  struct Case {
    std::string name;
    std::vector<int> signals;
    bool to_all = false;  // processes of the group, mpirun too
  };
  const std::vector<Case> cases = {{"int", {SIGINT}},
                                   {"term", {SIGTERM}},
                                   {"hup", {SIGHUP, SIGHUP}},
                                   {"usr1", {SIGUSR1, SIGINT}},
                                   {"timeout", {SIGTERM, SIGTERM}, true}};
  std::vector<std::unique_ptr<Process>> jobs;
  for (const Case& one : cases) jobs.push_back(start(one.name, slow()));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    await_ranks(cases[i].name);
    for (const int number : cases[i].signals) {
      cases[i].to_all ? jobs[i]->kill_group(number) : jobs[i]->kill(number);
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    EXPECT_EQ(jobs[i]->wait(seconds(60)), (ProcessEnd{.code = 75, .signal = 0}))
        << text_of(log(cases[i].name));
    EXPECT_EQ(count(log(cases[i].name), "saved"), 2) << text_of(log(cases[i].name));
  }
}

TEST_P(Launcher, KeepsARequestThatComesWhileRanksStart) {
  std::vector<std::unique_ptr<Process>> jobs;
  const std::vector<int> delays = {30, 100, 250, 500};  // ms; the script itself takes some
  for (const int delay : delays) {
    jobs.push_back(start("early" + std::to_string(delay), slow()));
    std::this_thread::sleep_for(milliseconds(delay));
    jobs.back()->kill(delay % 100 == 0 ? SIGTERM : SIGUSR1);
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const std::optional<ProcessEnd> end = jobs[i]->wait(seconds(60));
    const std::string text = text_of(log("early" + std::to_string(delays[i])));
    ASSERT_TRUE(end) << delays[i] << " ms: still runs\n" << text;
    // A rank that could not listen yet had nothing to save.
    EXPECT_TRUE(end->code == 75 || end->code > 128 || end->signal != 0)
        << delays[i] << " ms: " << to_string(*end) << "\n"
        << text;
  }
}

TEST_P(Launcher, StopsAtOnceWhenAskedTwice) {
  const auto job = start("twice", slow());
  await_ranks("twice");
  job->kill(SIGINT);
  EXPECT_FALSE(job->wait(milliseconds(1000)));
  job->kill(SIGINT);
  EXPECT_EQ(job->wait(seconds(3)), (ProcessEnd{.code = 130, .signal = 0}));
  EXPECT_EQ(count(log("twice"), "saved"), 0);
}

TEST_P(Launcher, EndsProgramsThatDoNotListenAndThoseThatFail) {
  const auto sleeps = start("sleeps", two({"/bin/sh", "-c", "echo up; exec sleep 100"}));
  const auto fails = start("fails", two({"/bin/sh", "-c", kIsFirst + " || exit 4; sleep 100"}));
  const auto absent = start("absent", two({"/nowhere/program"}));
  await_ranks("sleeps");
  sleeps->kill(SIGINT);
  EXPECT_EQ(sleeps->wait(seconds(20)), (ProcessEnd{.code = 130, .signal = 0}));
  EXPECT_EQ(fails->wait(seconds(20)), (ProcessEnd{.code = 4, .signal = 0}));
  const std::optional<ProcessEnd> end = absent->wait(seconds(20));
  EXPECT_TRUE(end && end->code > 0);
}

TEST_P(Launcher, ReadsItsInputAndOutlivesItsReader) {
  const std::string said = (folder_ / "said").string();
  const auto input = start(
      "input", {"/bin/sh", "-c",
                "echo words | " + line(two({"/bin/sh -c 'if", kIsFirst, "; then cat; fi'"}))});
  const auto output =
      start("output",
            {"/bin/bash", "-c",
             line(two({"/bin/sh -c 'for i in $(seq 40); do echo $i; sleep 0.1; done; echo $i >>",
                       said + "'"})) +
                 "| head -1; exit ${PIPESTATUS[0]}"});
  EXPECT_EQ(input->wait(seconds(20)), (ProcessEnd{.code = 0, .signal = 0}));
  EXPECT_EQ(text_of(log("input")), "words\n");
  EXPECT_EQ(output->wait(seconds(30)), (ProcessEnd{.code = 0, .signal = 0}));
  EXPECT_EQ(lines_of(said), 2);
}

TEST_P(Launcher, OfATerminalSavesAfterControlCAndAfterTheTerminalIsGone) {
  const std::string saved = (folder_ / "saved").string();
  std::ofstream(folder_ / "quiet.sh") << "trap 'asked=yes' USR1\necho up\n"
                                         "until [ \"$asked\" ]; do sleep 0.1; done\n"
                                         "sleep " +
                                             std::to_string(kStep) + "\necho saved >>" + saved +
                                             "\nexit 75\n";
  Terminal asked(slow());
  Terminal gone(two({"/bin/bash", (folder_ / "quiet.sh").string()}));
  Terminal twice(slow());
  Terminal reads(
      two({"/bin/sh", "-c", "if " + kIsFirst + "; then read word; echo \"<$word>\"; fi"}));
  for (Terminal* one : {&asked, &gone, &twice}) ASSERT_TRUE(one->shows("up\r\nup")) << one->shown;
  asked.type("\x03");
  gone.close();
  twice.type("\x03");
  std::this_thread::sleep_for(milliseconds(1000));
  twice.type("\x03");
  EXPECT_EQ(twice.wait(seconds(3)), 130) << twice.shown;
  reads.type("hello\n");
  EXPECT_TRUE(reads.shows("<hello>")) << reads.shown;
  EXPECT_EQ(asked.wait(seconds(60)), 75) << asked.shown;
  const std::size_t first = asked.shown.find("\nsaved");
  EXPECT_NE(first, std::string::npos) << asked.shown;
  EXPECT_NE(asked.shown.find("\nsaved", first + 1), std::string::npos) << asked.shown;
  EXPECT_EQ(gone.wait(seconds(60)), 75);
  EXPECT_EQ(lines_of(saved), 2);
}

// A step of some seconds in piton itself.
TEST_P(Launcher, SavesTheStepOfARun) {
  make_corpus(folder_.path());
  const auto to = folder_ / "run";
  Terminal job(two(with_program(pretrain(folder_.path()))) +
               Words{"--seq-length", "64", "--global-batch-size", "512", "--train-iters", "100",
                     "--log-interval", "1", "--save", to.string()});
  ASSERT_TRUE(job.shows("iteration        1/")) << job.shown;
  job.type("\x03");
  EXPECT_EQ(job.wait(seconds(120)), 75) << job.shown;
  // The step under way, which may still be the first one, and none after it.
  const auto step = [](std::int64_t number) { return fmt::format("iteration {:8}/", number); };
  const std::int64_t saved = latest(to);
  EXPECT_GE(saved, 1) << job.shown;
  EXPECT_NE(job.shown.find(step(saved)), std::string::npos) << job.shown;
  EXPECT_EQ(job.shown.find(step(saved + 1)), std::string::npos) << job.shown;
  EXPECT_NE(job.shown.find("piton resume "), std::string::npos) << job.shown;
}

INSTANTIATE_TEST_SUITE_P(Of, Launcher, testing::Values(Starts::kByPiton, Starts::kByMpirun),
                         [](const auto& of) {
                           return of.param == Starts::kByPiton ? "Piton" : "Mpirun";
                         });

}  // namespace
}  // namespace piton::drill
