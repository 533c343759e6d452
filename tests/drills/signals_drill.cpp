// Signals during training: many SIGUSR1 on every instruction set, and the documented effects of
// SIGINT, SIGTERM, SIGHUP and an output that is closed.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>

#include "drills/terminal.h"
#include "drills/tiny_run.h"
#include "support/instruction_sets.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Signals : public testing::Test {
 protected:
  void SetUp() override { make_corpus(folder_.path()); }

  // The hash of a run whose options end it after `iteration`.
  std::string reference(const std::string& isa, std::int64_t iteration) {
    std::string& hash = references_[isa][iteration];
    if (hash.empty()) {
      const auto to = folder_ / ("reference-" + isa + "-" + std::to_string(iteration));
      Process::Settings settings;
      settings.environment = {"PITON_ISA=" + isa};
      EXPECT_EQ(
          run(storm_run(isa, to) + Words{"--exit-interval", std::to_string(iteration)}, settings),
          (ProcessEnd{.code = 0, .signal = 0}));
      hash = hash_of(to);
    }
    return hash;
  }
  // Tiles are loaded in bf16 products only; all other sets compute in fp32, where the generated
  // code keeps its stack pointer in the heap.
  Words storm_run(const std::string& isa, const std::filesystem::path& to) const {
    Words words = pretrain(folder_.path()) +
                  Words{"--seq-length", "64",     "--micro-batch-size", "4", "--train-iters",
                        "100000",       "--save", to.string()};
    return isa == "amx" ? words + Words{"--bf16"} : words;
  }
  // Steps of minutes.
  Words long_step() const {
    return pretrain(folder_.path()) +
           Words{"--seq-length",       "64", "--global-batch-size", "65536",
                 "--micro-batch-size", "32", "--train-iters",       "2"};
  }

  const TempFolder folder_;
  std::map<std::string, std::map<std::int64_t, std::string>> references_;
};

TEST_F(Signals, TwoHundredSigusr1SaveOnceAndChangeNothingElse) {
  for (const std::string isa : test::kInstructionSets) {
    Process::Settings probe;
    probe.environment = {"PITON_ISA=" + isa};
    const Words product{"bench", "gemm", "--rows",   "8", "--in",  "16",
                        "--out", "16",   "--rounds", "1", "--json"};
    if (run(product, probe).code == 2) continue;  // not of this processor
    for (std::int64_t round = first_round(); round < end_round(1, 20); ++round) {
      SCOPED_TRACE(testing::Message() << isa << ", round " << round << ", seed " << seed(round));
      Draw draw(seed(round));
      const auto to = folder_ / (isa + "-" + std::to_string(round));
      Process::Settings settings = probe;
      settings.out = to.string() + ".log";
      Process process(with_program(storm_run(isa, to)), settings);
      const std::int64_t after = 1 + draw.below(8);
      ASSERT_TRUE(wait_for([&] { return lines_of(to / "metrics.jsonl") >= after; }))
          << text_of(settings.out);
      for (int signal = 0; signal < 200; ++signal) {
        process.kill(SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(draw.below(800)));
      }
      const ProcessEnd end = process.wait(seconds(60)).value_or(ProcessEnd{});
      EXPECT_EQ(end, (ProcessEnd{.code = 75, .signal = 0})) << to_string(end) << "\n"
                                                            << text_of(settings.out);
      const std::int64_t iteration = latest(to);
      ASSERT_GT(iteration, 0);
      EXPECT_NE(hash_of(to), "");
      EXPECT_EQ(hash_of(to), reference(isa, iteration)) << "iteration " << iteration;
    }
  }
}

TEST_F(Signals, DuringASaveInTheBackgroundEndTheRunWithBothSavesWhole) {
  for (std::int64_t round = first_round(); round < end_round(4, 100); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round << ", seed " << seed(round));
    Draw draw(seed(round));
    const auto to = folder_ / ("background-" + std::to_string(round));
    Process::Settings settings;
    settings.environment = {"PITON_ISA=v2"};
    settings.out = to.string() + ".log";
    Process process(with_program(storm_run("v2", to) + Words{"--save-interval", "1"}), settings);
    const std::int64_t after = 1 + draw.below(4);
    ASSERT_TRUE(wait_for([&] { return latest(to) >= after; })) << text_of(settings.out);
    std::this_thread::sleep_for(std::chrono::microseconds(draw.below(8'000)));
    process.kill(draw.below(2) == 0 ? SIGTERM : SIGINT);
    const ProcessEnd end = process.wait(seconds(60)).value_or(ProcessEnd{});
    EXPECT_EQ(end, (ProcessEnd{.code = 75, .signal = 0})) << to_string(end) << "\n"
                                                          << text_of(settings.out);
    // Every step is saved, so the last one was in the background, or was saved at the end.
    EXPECT_EQ(latest(to), lines_of(to / "metrics.jsonl")) << text_of(settings.out);
    EXPECT_EQ(hash_of(to), reference("v2", latest(to)));
    for (const auto& entry : std::filesystem::directory_iterator(to)) {
      EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
    }
  }
}

TEST_F(Signals, TheFirstIsHeardWithinASecondAndTheSecondEndsAtOnceInAStepOfMinutes) {
  struct Case {
    int first, second, code;
  };
  const std::vector<Case> all{{SIGINT, SIGINT, 130},
                              {SIGTERM, SIGTERM, 143},
                              {SIGUSR1, SIGINT, -1},
                              {SIGHUP, SIGINT, -1},
                              {SIGTERM, SIGINT, 130}};
  for (const Case& one : test::sampled(all, 2)) {
    SCOPED_TRACE(testing::Message() << one.first << ", then " << one.second);
    const auto to = folder_ / ("long-" + std::to_string(one.first) + std::to_string(one.second));
    Process::Settings settings;
    settings.out = to.string() + ".log";
    Process process(with_program(long_step() + Words{"--save", to.string()}), settings);
    ASSERT_TRUE(wait_for([&] {
      return text_of(settings.out).find("model: ") != std::string::npos;
    })) << text_of(settings.out);
    std::this_thread::sleep_for(milliseconds(whole() ? 1000 : 300));  // into the step
    process.kill(one.first);
    EXPECT_TRUE(wait_for(
        [&] { return text_of(settings.out).find("stopping after this step") != std::string::npos; },
        seconds(1)))
        << text_of(settings.out);
    process.kill(SIGUSR1);  // says nothing new
    EXPECT_FALSE(process.wait(milliseconds(400)));
    process.kill(one.second);
    if (one.code < 0) {  // the first of those that end
      EXPECT_FALSE(process.wait(milliseconds(500)));
      continue;
    }
    EXPECT_EQ(process.wait(seconds(1)), (ProcessEnd{.code = one.code, .signal = 0}));
  }
}

TEST_F(Signals, WithoutSaveTheRunSaysSoAndEndsWithTheSignalsOwnCode) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    Process::Settings settings;
    settings.out = folder_ / ("unsaved" + std::to_string(number) + ".log");
    Process process(
        with_program(pretrain(folder_.path()) + Words{"--seq-length", "16", "--train-iters",
                                                      "1000000", "--log-interval", "1"}),
        settings);
    ASSERT_TRUE(wait_for([&] {
      return text_of(settings.out).find("iteration        2/") != std::string::npos;
    })) << text_of(settings.out);
    EXPECT_NE(text_of(settings.out).find("nothing of this run will be kept"), std::string::npos);
    process.kill(number);
    EXPECT_EQ(process.wait(seconds(20)), (ProcessEnd{.code = 128 + number, .signal = 0}))
        << text_of(settings.out);
  }
}

// As in `piton pretrain ... | head -1`, and 2>&1 | head -1.
TEST_F(Signals, AnOutputThatIsClosedEndsTheLogAndNotTheRun) {
  const std::string steps = whole() ? "300" : "100";
  for (const std::string& error : {"2>" + (folder_ / "error.log").string(), std::string("2>&1")}) {
    const auto to = folder_ / ("closed" + std::to_string(error.size()));
    std::string line;
    for (const std::string& word : with_program(
             pretrain(folder_.path()) + Words{"--seq-length", "16", "--train-iters", steps,
                                              "--log-interval", "1", "--save", to.string()})) {
      line += word + " ";
    }
    Process::Settings settings;
    settings.out = to.string() + ".log";
    Process process({"/bin/bash", "-c", line + error + " | head -1; exit ${PIPESTATUS[0]}"},
                    settings);
    EXPECT_EQ(process.wait(seconds(60)), (ProcessEnd{.code = 0, .signal = 0}))
        << text_of(settings.out);
    EXPECT_EQ(lines_of(to / "metrics.jsonl"), std::stoll(steps));
    EXPECT_EQ(latest(to), std::stoll(steps));
  }
  EXPECT_NE(text_of(folder_ / "error.log").find("nobody reads the output any more"),
            std::string::npos);
}

// Control-C ends an answer of minutes, and the conversation continues; where no answer is written,
// it ends the program.
TEST_F(Signals, EndAnAnswerOfChat) {
  const auto to = folder_ / "talks";
  ASSERT_EQ(run(pretrain(folder_.path()) + Words{"--seq-length", "64", "--train-iters", "1",
                                                 "--max-position-embeddings", "100000", "--save",
                                                 to.string()}),
            (ProcessEnd{.code = 0}));
  Terminal chat(with_program({"chat", "--load", to.string(), "--chat-template", "default",
                              "--greedy", "--max-new-tokens", "90000"}));
  ASSERT_TRUE(chat.shows("You >> ")) << chat.shown;
  for (int question = 1; question <= 2; ++question) {
    chat.shown.clear();
    chat.type("hello\n");
    ASSERT_TRUE(chat.shows("Piton: ")) << chat.shown;
    std::this_thread::sleep_for(milliseconds(300));
    ASSERT_FALSE(chat.shows("You >> ", seconds(0))) << "the answer is too short: " << chat.shown;
    chat.type("\x03");
    ASSERT_TRUE(chat.shows("\nYou >> ", seconds(20))) << question << ": " << chat.shown;
  }
  chat.type("\x03");
  EXPECT_EQ(chat.wait(seconds(20)), -SIGINT) << chat.shown;
}

}  // namespace
}  // namespace piton::drill
