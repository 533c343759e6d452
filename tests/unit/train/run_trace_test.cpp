// --trace and --timing-log-level of a Trainer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"
#include "train/sinks/log_sink.h"
#include "train/trace/run_timers.h"

namespace piton {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class RunTraceTest : public testing::Test {
 protected:
  RunTraceTest() { test::write_small_corpus(folder_ / "corpus"); }
  std::string file() const { return (folder_ / "out/trace.json").string(); }

  // Trains `steps` steps on two ranks; the messages of the first one.
  std::vector<std::string> train(int steps, const std::vector<std::string>& more) {
    const PretrainOptions options = test::small_options(folder_ / "corpus", more);
    std::vector<std::string> messages;
    test::run_ranks(2, [&](World& world) {
      test::SmallMachine own(world);
      test::EventSink sink;
      Trainer trainer(own.machine(), options, {&sink});
      for (int i = 0; i < steps; ++i) {
        trainer.step();
        if (trainer.save_due()) trainer.save_if_possible();
      }
      trainer.finish();
      if (world.rank() == 0) messages = sink.messages;
    });
    return messages;
  }
  json events() const {
    return read_json<nlohmann::json>(read_text_file(file())).at("traceEvents");
  }

  TempFolder folder_;
};

// The events of the kind "X" of each row, by process and thread, must nest.
void expect_nested(const json& events) {
  struct Span {
    double begin, end;
    std::string name;
  };
  std::map<std::pair<int, int>, std::vector<Span>> rows;
  for (const json& event : events) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), length = event.at("dur");
    EXPECT_GT(length, 0) << event;
    EXPECT_GE(begin, 0) << event;
    rows[{event.at("pid"), event.at("tid")}].push_back(
        {begin, begin + length, event.at("name").get<std::string>()});
  }
  constexpr double kRounding = 0.003;  // microseconds
  for (auto& [row, spans] : rows) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<Span> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back().end <= span.begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back().end + kRounding)
            << span.name << " in " << open.back().name << " of " << row.first << "." << row.second;
      }
      open.push_back(span);
    }
  }
}

TEST_F(RunTraceTest, HasKernelsCommunicationAndPartsOfTwoStepsOfEachRank) {
  EXPECT_THAT(train(6, {"--trace", file(), "--use-distributed-optimizer"}),
              Contains(HasSubstr("trace: " + file())));
  const json all = events();
  expect_nested(all);
  std::map<int, std::set<std::string>> names, rows, steps;
  for (const json& event : all) {
    const int process = event.at("pid");
    if (event.at("ph") == "M") {
      if (event.at("name") == "thread_name") rows[process].insert(event["args"]["name"]);
    } else if (event.at("ph") == "X") {
      names[process].insert(event.at("name"));
      if (event.at("name") == "step") steps[process].insert(event["args"]["detail"]);
    }
  }
  for (const int process : {0, 1}) {
    EXPECT_THAT(names[process], AllOf(Contains("linear forward"), Contains("attention backward"),
                                      Contains("adamw"), Contains("reduce-scatter"),
                                      Contains("all-gather"), Contains("forward-backward"),
                                      Contains("forward-compute"), Contains("optimizer")));
    EXPECT_THAT(rows[process], AllOf(Contains("main thread"), Contains("compute stream"),
                                     Contains(HasSubstr("group "))));
    EXPECT_THAT(steps[process], UnorderedElementsAre("number 3", "number 4"));
  }
  EXPECT_THAT(names, SizeIs(2)) << "two processes";
  EXPECT_FALSE(std::filesystem::exists(file() + ".rank0"));
}

// The thread of a save records its communication during the steps.
TEST_F(RunTraceTest, HasTheSavesThatGoOnBesideSteps) {
  const std::string run = (folder_ / "run").string();
  EXPECT_THAT(train(6, {"--trace", file(), "--save", run, "--save-interval", "1"}),
              Contains(HasSubstr("trace: " + file())));
  const json all = events();
  expect_nested(all);
  std::set<std::string> names;
  for (const json& event : all) {
    if (event.at("ph") == "X") names.insert(event.at("name"));
  }
  EXPECT_THAT(names, AllOf(Contains("save-checkpoint"), Contains("step")));
}

TEST_F(RunTraceTest, HasTheStepsAndRanksThatAreAskedFor) {
  train(3, {"--trace", file(), "--profile-step-start", "0", "--profile-step-end", "2",
            "--profile-ranks", "1"});
  std::set<std::string> steps;
  for (const json& event : events()) {
    if (event.at("ph") == "i") continue;
    EXPECT_EQ(event.at("pid"), 1) << event;
    if (event.at("name") == "step") steps.insert(event["args"]["detail"]);
  }
  EXPECT_THAT(steps, UnorderedElementsAre("number 1", "number 2"));
}

TEST_F(RunTraceTest, OfARunThatEndsEarlyHasWhatThereIsOrSaysThatThereIsNone) {
  train(3, {"--trace", file()});
  expect_nested(events());
  std::filesystem::remove(file());
  EXPECT_THAT(train(2, {"--trace", file()}),
              Contains(HasSubstr("the run ended before iteration 3, so there is no trace")));
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(RunTraceTest, OfStepsOfAnEarlierStartIsNotMissing) {
  const std::string run = (folder_ / "run").string();
  const std::vector<std::string> range = {"--profile-step-start", "0", "--profile-step-end", "2"};
  std::vector<std::string> words = {"--trace", file(), "--save",          run,
                                    "--load",  run,    "--save-interval", "1"};
  words.insert(words.end(), range.begin(), range.end());
  train(3, words);
  const std::string before = read_text_file(file());
  const std::vector<std::string> lines = train(5, words);
  EXPECT_THAT(lines, Contains(HasSubstr("--trace: iterations 1 to 2 are before this start, which "
                                        "continues after iteration 3; it records nothing")));
  EXPECT_THAT(lines, testing::Not(Contains(HasSubstr("there is no trace"))));
  EXPECT_EQ(read_text_file(file()), before);
}

TEST_F(RunTraceTest, GoesIntoTheRunsFolderByMegatronsFlag) {
  const std::string run = (folder_ / "run").string();
  train(2, {"--save", run, "--profile", "--profile-step-start", "1", "--profile-step-end", "2"});
  EXPECT_TRUE(std::filesystem::exists(run + "/trace.json"));
}

TEST_F(RunTraceTest, IsRefusedForStepsRanksAndFilesThatCannotBe) {
  const auto refusal = [&](Fault fault, const std::vector<std::string>& more) {
    return message_of(fault, [&] { train(0, more); });
  };
  EXPECT_THAT(refusal(Fault::kUsage, {"--profile"}), HasSubstr("--profile: no file"));
  EXPECT_THAT(refusal(Fault::kUsage,
                      {"--trace", file(), "--profile-step-start", "5", "--profile-step-end", "5"}),
              HasSubstr("got 5 and 5, wanted 0 or more, and an end after the start"));
  EXPECT_THAT(refusal(Fault::kUsage, {"--trace", file(), "--profile-ranks", "0", "2"}),
              HasSubstr("--profile-ranks: got 2, wanted ranks from 0 to 1"));
  EXPECT_THAT(refusal(Fault::kData, {"--trace", "/proc/trace.json"}), HasSubstr("/proc"));
}

TEST_F(RunTraceTest, IsNotThereUnlessAskedFor) {
  const std::string run = (folder_ / "run").string();
  train(6, {"--save", run});
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    EXPECT_THAT(entry.path().string(), testing::Not(HasSubstr("trace")));
  }
}

TEST(TraceEvents, CountsWhatHasNoRoom) {
  TraceEvents events(3);
  events.set_recording(true);
  const TraceEvents::Time now = TraceEvents::Clock::now();
  for (int i = 0; i < 5; ++i) events.add(events.row("a \"row\""), {"c", "e", ""}, now, now);
  EXPECT_EQ(events.size(), 3);
  EXPECT_EQ(events.dropped(), 2);
  std::string text = "[0";
  events.write_json(7, "p", now, [&](std::string_view more) { text += more; });
  const json parsed = read_json<nlohmann::json>(text + "]");
  EXPECT_EQ(parsed.back().at("pid"), 7);
  EXPECT_GT(parsed.back().at("dur"), 0);
}

// Times by hand, in the form of Megatron-core's megatron/core/timers.py.
TEST(TimerLines, AreThoseOfMegatron) {
  const std::vector<TimerTimes> times{{"forward-backward", {12.345, 10.0}}, {"optimizer", {0, 2}}};
  EXPECT_THAT(timer_lines(times, "minmax"),
              ElementsAre("(min, max) time across ranks (ms):",
                          "    forward-backward ...............................: (10.00, 12.35)",
                          "    optimizer ......................................: (2.00, 2.00)"));
  EXPECT_THAT(timer_lines(times, "max"),
              ElementsAre("max time across ranks (ms):",
                          "    forward-backward ...............................: 12.35",
                          "    optimizer ......................................: 2.00"));
  EXPECT_THAT(timer_lines(times, "all"),
              ElementsAre("times across ranks (ms):", "  forward-backward:", "     rank  0: 12.35",
                          "     rank  1: 10.00", "  optimizer:", "     rank  1: 2.00"));
  EXPECT_THAT(timer_lines({}, "max"), IsEmpty());
}

}  // namespace
}  // namespace piton
