// A Trainer used by a program.
#include "train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/reported_elsewhere.h"
#include "kernels/measured/forwarding_kernels.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { test::write_small_corpus(prefix()); }
  std::filesystem::path prefix() const { return folder_ / "corpus"; }
  PretrainOptions options(const std::vector<std::string>& more = {}) const {
    return test::small_options(prefix(), more);
  }
  std::string run_folder() const { return (folder_ / "run").string(); }

  std::vector<double> losses(const PretrainOptions& options, int steps) {
    EventSink sink;
    Trainer trainer(own_.machine(), options, {&sink});
    for (int i = 0; i < steps; ++i) trainer.step();
    return sink.losses;
  }

  TempFolder folder_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
};

TEST_F(TrainerTest, OpensStepsEvaluatesSavesAndGoesOnWhereItWas) {
  const std::vector<double> whole = losses(options(), 6);
  EventSink first;
  double evaluated = 0;
  {
    Trainer trainer(own_.machine(), options({"--save", run_folder()}), {&first});
    EXPECT_FALSE(trainer.done());
    for (int i = 0; i < 3; ++i) {
      const StepMetrics metrics = trainer.step();
      EXPECT_EQ(metrics.iteration, i + 1);
      EXPECT_EQ(metrics.lm_loss, whole[i]);
      EXPECT_EQ(metrics.consumed_tokens, (i + 1) * 4 * 16);
    }
    evaluated = trainer.evaluate();
    EXPECT_EQ(trainer.evaluate(), evaluated) << "an evaluation changes nothing";
    EXPECT_FALSE(trainer.is_saved());
    trainer.save();
    EXPECT_TRUE(trainer.is_saved());
    trainer.finish();
  }
  EventSink second;
  Trainer trainer(own_.machine(), options({"--save", run_folder(), "--load", run_folder()}),
                  {&second});
  EXPECT_EQ(trainer.state().iteration, 3);
  EXPECT_TRUE(trainer.is_saved());
  EXPECT_EQ(trainer.evaluate(), evaluated);
  EXPECT_EQ(trainer.step().lm_loss, whole[3]);
  EXPECT_FALSE(trainer.is_saved());
  EXPECT_EQ(trainer.step().lm_loss, whole[4]);
  const StepMetrics last = trainer.step();
  EXPECT_EQ(last.lm_loss, whole[5]);
  EXPECT_TRUE(last.validation_loss.has_value()) << "due at the end";
  EXPECT_TRUE(trainer.done());
  EXPECT_THAT(second.messages, Contains(HasSubstr("resumed " + run_folder())));
}

TEST_F(TrainerTest, EvaluatesTheTestSetAsItDoesTheFirstOfValidation) {
  const std::string other = (folder_ / "other").string();
  test::write_small_corpus(other, 60, 1);
  PretrainOptions tests = options();
  tests.data.split = DataOptions().split;
  tests.data.data_path.clear();
  tests.data.train_data_path = tests.data.valid_data_path = {prefix().string()};
  PretrainOptions validates = tests;
  validates.data.valid_data_path = {other};
  tests.data.test_data_path = {other};
  EventSink sink;
  Trainer trainer(own_.machine(), tests, {&sink});
  Trainer trainer_of_other(own_.machine(), validates, {});
  EXPECT_EQ(trainer.test(), trainer_of_other.evaluate());
  EXPECT_NE(trainer.test(), trainer.evaluate());
  EXPECT_EQ(trainer_of_other.test(), std::nullopt);
  EXPECT_THAT(sink.events, Contains("test 0"));
}

// The last id of NullTokenizer ends a document, and --eod-mask-loss leaves it out.
TEST_F(TrainerTest, SaysThatNoValidationLossIsThereIfAllLabelsAreMasked) {
  IndexedWriter writer((folder_ / "ends").string(), IdType::kUint16);
  for (int document = 0; document < 60; ++document) {
    writer.add_sequence(std::vector<std::int32_t>(40, 199));
    writer.end_document();
  }
  writer.finish();
  PretrainOptions masked =
      options({"--tokenizer-type", "NullTokenizer", "--vocab-size", "199", "--eod-mask-loss",
               "--eval-interval", "2", "--train-iters", "2", "--save", run_folder()});
  masked.data.split = DataOptions().split;
  masked.data.data_path.clear();
  masked.data.train_data_path = {prefix().string()};
  masked.data.valid_data_path = {(folder_ / "ends").string()};
  EventSink sink;
  Trainer trainer(own_.machine(), masked, {&sink});
  trainer.step();
  EXPECT_FALSE(trainer.step().validation_loss.has_value());
  EXPECT_THAT(sink.messages,
              Contains(HasSubstr("warning: iteration 2: there is no validation loss: no token of "
                                 "the 2 batches has one")));
  EXPECT_THAT(message_of(Fault::kData, [&] { trainer.evaluate(); }),
              HasSubstr("there is no validation loss"));
  trainer.finish();
}

// Calls as they are, by another name.
class RenamedKernels final : public ForwardingKernels {
 public:
  using ForwardingKernels::ForwardingKernels;
  std::string name() const override { return "cpu: others"; }

 private:
  void submit(const KernelCall& call, Stream& stream) override { inner_.run(call, stream); }
};

TEST_F(TrainerTest, SaysThatItGoesOnByOtherKernels) {
  const std::string name = own_.machine().kernels.name();
  {
    Trainer trainer(own_.machine(), options({"--save", run_folder()}), {});
    trainer.step();
    trainer.save();
  }
  const auto messages = [&](const Machine& machine) {
    EventSink sink;
    Trainer trainer(machine, options({"--save", run_folder(), "--load", run_folder()}), {&sink});
    return sink.messages;
  };
  const auto told = Contains(
      HasSubstr("the checkpoint was computed by " + name + ", this run continues by cpu: others"));
  EXPECT_THAT(messages(own_.machine()), Not(Contains(HasSubstr("this run continues by"))));
  RenamedKernels others(own_.machine().kernels);
  const Machine& own = own_.machine();
  EXPECT_THAT(
      messages({own.world, own.device, others, own.arena, own.stream, own.threads, own.log}), told);
}

TEST_F(TrainerTest, TellsItsSinksWhatHappensInOrder) {
  EventSink sink;
  Trainer trainer(own_.machine(), options({"--save", run_folder(), "--eval-interval", "2"}),
                  {&sink});
  trainer.step();
  trainer.step();
  trainer.save_if_possible();
  trainer.finish_saves();
  trainer.evaluate();
  trainer.finish();
  EXPECT_THAT(sink.events, ElementsAre("start 0", "forward of 1", "backward of 1", "forward of 1",
                                       "backward of 1", "step 1", "forward of 2", "backward of 2",
                                       "forward of 2", "backward of 2", "evaluation 1 after 2",
                                       "evaluation 2 after 2", "step 2", "validation 2", "save 2",
                                       "evaluation 1 after 2", "evaluation 2 after 2",
                                       "validation 2", "finish"));
  EXPECT_EQ(sink.started.train_iters, 6);
  EXPECT_EQ(sink.started.micro_batches, 2);
  EXPECT_EQ(sink.started.sequence, 16);
  EXPECT_THAT(sink.messages, Contains(HasSubstr("model: ")));
  std::ifstream lines(run_folder() + "/metrics.jsonl");
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  ASSERT_EQ(all.size(), 2);
  EXPECT_THAT(all[0], Not(HasSubstr("validation_loss")));
  EXPECT_THAT(all[1], HasSubstr("validation_loss"));
}

TEST_F(TrainerTest, SaysWhenItIsDueToSaveAndToLeave) {
  Trainer trainer(own_.machine(),
                  options({"--save", run_folder(), "--save-interval", "2", "--exit-interval", "3",
                           "--train-iters", "5"}),
                  {});
  std::string due;
  EXPECT_FALSE(trainer.exit_due());
  while (!trainer.done()) {
    trainer.step();
    due += trainer.save_due() ? "s" : "-";
    due += trainer.exit_due() ? "e " : "- ";
    if (trainer.save_due()) trainer.save();
    EXPECT_FALSE(trainer.save_due());
  }
  EXPECT_EQ(due, "-- s- -e s- s- ");
}

TEST_F(TrainerTest, SavesByTheClockToo) {
  const auto due_after_each = [&](const std::string& folder, const std::vector<std::string>& more) {
    std::vector<std::string> words{"--save", (folder_ / folder).string()};
    words.insert(words.end(), more.begin(), more.end());
    EventSink sink;
    Trainer trainer(own_.machine(), options(words), {&sink});
    std::string due;
    while (!trainer.done()) {
      trainer.step();
      due += trainer.save_due() ? "s" : "-";
      if (trainer.save_due()) trainer.save_if_possible();
      EXPECT_FALSE(trainer.save_due());
    }
    trainer.finish();
    EXPECT_THAT(sink.messages, Contains(HasSubstr("saves continue in the background")));
    EXPECT_EQ(latest_iteration(folder_ / folder), 6);
    return due;
  };
  EXPECT_EQ(due_after_each("always", {"--save-interval-in-mins", "1e-9"}), "ssssss");
  EXPECT_EQ(due_after_each("never", {"--save-interval-in-mins", "1e6"}), "-----s");
  EXPECT_EQ(due_after_each("both", {"--save-interval-in-mins", "1e6", "--save-interval", "2"}),
            "-s-s-s");
  const auto refusal = [&](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { Trainer(own_.machine(), options(words), {}); });
  };
  EXPECT_THAT(refusal({"--save-interval-in-mins", "0", "--save", run_folder()}),
              HasSubstr("--save-interval-in-mins: got 0, wanted more than 0"));
  EXPECT_THAT(refusal({"--verify-saves"}), HasSubstr("--verify-saves: needs --save DIR"));
}

TEST_F(TrainerTest, RanksSaveByOneClock) {
  test::run_ranks(2, [&](World& world) {
    test::SmallMachine own(world);
    Trainer trainer(own.machine(),
                    options({"--save", run_folder(), "--save-interval-in-mins", "1e-9"}), {});
    trainer.step();
    EXPECT_TRUE(trainer.save_due());
    trainer.save();
    trainer.finish();
  });
  EXPECT_EQ(latest_iteration(run_folder()), 1);
}

TEST_F(TrainerTest, SavesTheWeightsAloneAndGoesOnFromThemWhenAsked) {
  const std::string whole = (folder_ / "whole").string();
  for (const auto& [to, more] :
       {std::pair{whole, "--async-save"}, {run_folder(), "--no-save-optim"}}) {
    Trainer trainer(own_.machine(), options({"--save", to, "--save-interval", "2", more}), {});
    trainer.step();
    trainer.step();
    trainer.save_if_possible();
    trainer.finish();
  }
  const std::filesystem::path saved = find_checkpoint(run_folder());
  EXPECT_EQ(weights_hash(saved), weights_hash(find_checkpoint(whole)));
  EXPECT_EQ(optimizer_hash(saved), "");
  EXPECT_FALSE(std::filesystem::exists(saved / "optimizer-00001.safetensors"));
  EXPECT_EQ(read_state(saved, read_manifest(saved)).optimizer_steps, 2);
  const auto again = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--load", run_folder(), "--save", run_folder()});
    return options(more);
  };
  EXPECT_THAT(message_of(Fault::kData, [&] { Trainer(own_.machine(), again({}), {}); }),
              AllOf(HasSubstr("it holds no optimizer state: --no-load-optim continues"),
                    HasSubstr("--finetune")));
  {
    Trainer trainer(own_.machine(), again({"--no-load-optim"}), {});
    EXPECT_EQ(trainer.state().iteration, 2);
    trainer.step();
    trainer.save();
  }
  EXPECT_NE(optimizer_hash(find_checkpoint(run_folder())), "");
  {  // of which a schedule is no part either
    EventSink sink;
    Trainer trainer(own_.machine(), again({"--no-load-optim", "--lr-decay-iters", "3"}), {&sink});
    EXPECT_THAT(sink.messages, Contains(HasSubstr("tokens, a new optimizer, last loss")));
    EXPECT_THAT(sink.messages, Contains(HasSubstr("from its first step on (--no-load-optim)")));
  }
  Trainer tuned(own_.machine(), options({"--finetune", "--load", saved.string()}), {});
  EXPECT_EQ(tuned.state().iteration, 0);
  const auto refusal = [&](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { Trainer(own_.machine(), options(words), {}); });
  };
  EXPECT_THAT(refusal({"--no-save-optim", "--save", whole, "--ema-decay", "0.9"}),
              HasSubstr("--no-save-optim: leaves out the moving average of --ema-decay"));
}

// Text of the hash of the newest checkpoint in `folder`.
std::string hash_of(const std::filesystem::path& folder) {
  const std::filesystem::path checkpoint = find_checkpoint(folder);
  return weights_hash(checkpoint) + optimizer_hash(checkpoint);
}

TEST_F(TrainerTest, ASaveInTheBackgroundIsReportedLaterAndHasTheStateOfItsStep) {
  const std::filesystem::path waited = folder_ / "waited", background = folder_ / "background";
  for (const auto& [to, flag] :
       {std::pair{waited, "--no-async-save"}, {background, "--async-save"}}) {
    EventSink sink;
    Trainer trainer(own_.machine(), options({"--save", to.string(), "--save-interval", "2", flag}),
                    {&sink});
    trainer.step();
    trainer.step();
    trainer.save_if_possible();
    EXPECT_FALSE(trainer.save_due());
    EXPECT_EQ(trainer.is_saved(), to == waited);
    EXPECT_EQ(sink.events.back(), to == waited ? "save 2" : "step 2");
    trainer.step();
    trainer.finish_saves();
    EXPECT_THAT(sink.events, Contains("save 2"));
    trainer.finish();
    EXPECT_EQ(std::ranges::count(sink.events, "save 2"), 1);
    EXPECT_EQ(sink.events.back(), "finish");
  }
  EXPECT_EQ(hash_of(background), hash_of(waited));
}

// How a save was made is known, not read off the clock: training waits here from its start to its
// end, and a little longer.
TEST_F(TrainerTest, ASaveInTheBackgroundIsOneHoweverLongTrainingWaitedForIt) {
  for (const bool background : {true, false}) {
    EventSink sink;
    Trainer trainer(
        own_.machine(),
        options({"--save", (folder_ / (background ? "background" : "waited")).string(),
                 "--save-interval", "1", background ? "--async-save" : "--no-async-save"}),
        {&sink});
    for (int step = 0; step < 5; ++step) {
      trainer.step();
      trainer.save_if_possible();
      trainer.finish_saves();
    }
    ASSERT_EQ(sink.saves.size(), 5U);
    for (const RunSave& save : sink.saves) {
      EXPECT_EQ(save.in_background, background);
      EXPECT_GT(save.seconds, 0);
      EXPECT_LE(save.blocked_seconds, save.seconds);
      if (!background) {
        EXPECT_EQ(save.blocked_seconds, save.seconds);
      }
    }
  }
}

// Every thread that a rank has at the same time: two that compute and read the checkpoint, and one
// that saves during the steps.
TEST_F(TrainerTest, OnTwoRanksOfTwoThreadsSavesBesideStepsAndGoesOn) {
  const std::filesystem::path waited = folder_ / "waited", background = folder_ / "background";
  for (const auto& [to, flag] :
       {std::pair{waited, "--no-async-save"}, {background, "--async-save"}}) {
    const PretrainOptions run =
        options({"--save", to.string(), "--load", to.string(), "--save-interval", "1",
                 "--zero-stage", "3", "--keep", "2", flag});
    test::run_ranks(2, [&](World& world) {
      test::SmallMachine own(world, /*threads=*/2);
      for (const int last : {3, 6}) {
        EventSink sink;
        Trainer trainer(own.machine(), run, {&sink});
        EXPECT_EQ(sink.started.iteration, last - 3);
        while (trainer.state().iteration < last) {
          trainer.step();
          if (trainer.save_due()) trainer.save_if_possible();
        }
        trainer.finish();
        EXPECT_EQ(sink.saves.size(), 3U);
      }
    });
    EXPECT_EQ(latest_iteration(to), 6);
  }
  EXPECT_EQ(hash_of(background), hash_of(waited));
}

TEST_F(TrainerTest, ASaveWaitsForTheOneBeforeAndTheLastOneForItsFiles) {
  EventSink sink;
  {
    Trainer trainer(own_.machine(), options({"--save", run_folder(), "--save-interval", "1"}),
                    {&sink});
    while (!trainer.done()) {
      trainer.step();
      if (trainer.save_due()) trainer.save_if_possible();
    }
  }  // not finished: the end of the trainer waits for the last one
  EXPECT_EQ(latest_iteration(run_folder()), 6);
  std::vector<std::string> saves;
  for (const std::string& event : sink.events) {
    if (event.starts_with("save")) saves.push_back(event);
  }
  EXPECT_THAT(saves, ElementsAre("save 1", "save 2", "save 3", "save 4", "save 5"));
}

// Files above 20 000 bytes are refused during its life: those of the tensors.
class SmallFilesOnly {
 public:
  SmallFilesOnly() : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit small = before_;
    small.rlim_cur = 20000;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SmallFilesOnly() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST_F(TrainerTest, ASaveThatFailsInTheBackgroundIsWarnedOfAndTheNextOneWorks) {
  EventSink sink;
  Trainer trainer(own_.machine(), options({"--save", run_folder(), "--save-interval", "2"}),
                  {&sink});
  trainer.step();
  trainer.step();
  {
    const SmallFilesOnly disk;
    trainer.save_if_possible();
    trainer.finish_saves();
  }
  EXPECT_FALSE(trainer.is_saved());
  EXPECT_THAT(sink.messages,
              Contains(AllOf(HasSubstr("warning: iteration 2 is not saved: checkpoint: "),
                             HasSubstr("model-00001.safetensors: cannot "),
                             HasSubstr("; the run continues and saves again at iteration 4"))));
  EXPECT_EQ(latest_iteration(run_folder()), std::nullopt);
  trainer.step();
  trainer.step();
  trainer.save_if_possible();
  trainer.finish();
  EXPECT_EQ(latest_iteration(run_folder()), 4);
  // The last save of a run is no warning.
  trainer.step();
  const SmallFilesOnly disk;
  EXPECT_THAT(message_of(Fault::kData, [&] { trainer.save(); }), HasSubstr("cannot "));
}

TEST_F(TrainerTest, ASaveByTheClockThatFailsIsTriedAgainLater) {
  EventSink sink;
  Trainer trainer(own_.machine(),
                  options({"--save", run_folder(), "--save-interval-in-mins", "1e-9"}), {&sink});
  trainer.step();
  ASSERT_TRUE(trainer.save_due());
  {
    const SmallFilesOnly disk;
    trainer.save_if_possible();
    trainer.finish_saves();
  }
  EXPECT_THAT(sink.messages,
              Contains(AllOf(HasSubstr("warning: iteration 1 is not saved: checkpoint: "),
                             HasSubstr("; the run continues and saves again in 1e-09 minutes"))));
  EXPECT_FALSE(trainer.save_due()) << "not before the next step";
  trainer.step();
  EXPECT_TRUE(trainer.save_due());
}

// Throws in the step after `steps`.
class ThrowingSink final : public RunSink {
 public:
  explicit ThrowingSink(int steps) : steps_(steps) {}
  void on_part(const RunPart& part) override {
    if (part.iteration > steps_) throw Error(Fault::kDiverged, "the test ends this");
  }

 private:
  int steps_;
};

TEST_F(TrainerTest, AFailureWaitsForTheSaveInTheBackground) {
  EventSink sink;
  ThrowingSink failing(2);
  Trainer trainer(own_.machine(), options({"--save", run_folder()}), {&sink, &failing});
  trainer.step();
  trainer.step();
  trainer.save_if_possible();
  EXPECT_THROW(trainer.step(), Error);
  EXPECT_THAT(sink.events, Contains("save 2"));
  EXPECT_EQ(latest_iteration(run_folder()), 2);
}

TEST_F(TrainerTest, SaysThatNothingIsLeftToDo) {
  {
    Trainer trainer(own_.machine(), options({"--save", run_folder(), "--train-iters", "1"}), {});
    trainer.step();
    trainer.save();
  }
  EventSink sink;
  Trainer trainer(own_.machine(),
                  options({"--save", run_folder(), "--load", run_folder(), "--train-iters", "1"}),
                  {&sink});
  EXPECT_TRUE(trainer.done());
  EXPECT_THAT(sink.messages, Contains(HasSubstr("nothing left to do")));
}

TEST_F(TrainerTest, StopsForASignalAndWhenItsTimeIsUpAfterOneStepAtLeast) {
  Trainer trainer(own_.machine(), options({"--exit-duration-in-mins", "1e-9"}), {});
  EXPECT_FALSE(trainer.agreed_stop(0).out_of_time) << "nothing is trained yet";
  EXPECT_EQ(trainer.agreed_stop(15).signal, 15);
  trainer.step();
  EXPECT_TRUE(trainer.agreed_stop(0).out_of_time);
  Trainer patient(own_.machine(), options({"--exit-duration-in-mins", "60"}), {});
  patient.step();
  EXPECT_FALSE(patient.agreed_stop(0).out_of_time);
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] {
                   Trainer none(own_.machine(), options({"--exit-duration-in-mins", "0"}), {});
                 }),
      HasSubstr("--exit-duration-in-mins: got 0, wanted more than 0"));
}

TEST_F(TrainerTest, RefusesWhatARunHasNotAndReportsItInTheFolder) {
  Trainer trainer(own_.machine(), options({"--eval-iters", "0"}), {});
  EXPECT_THAT(message_of(Fault::kUsage, [&] { trainer.save(); }), HasSubstr("--save DIR"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { trainer.evaluate(); }), HasSubstr("--eval-iters"));
  Trainer kept(own_.machine(), options({"--save", run_folder(), "--eval-iters", "0"}), {});
  EXPECT_THROW(kept.evaluate(), Error);
  std::ifstream report(run_folder() + "/failure.json");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(report), {}),
              HasSubstr("this run has no validation samples"));
}

// What is refused at the start leaves alone the folder of the run that it was refused for.
TEST_F(TrainerTest, ARefusalIsNoFailureOfTheRunThatIsThere) {
  {
    Trainer trainer(own_.machine(), options({"--save", run_folder(), "--train-iters", "1"}), {});
    trainer.step();
    trainer.save();
  }
  const std::vector<std::string> again{"--save", run_folder(), "--load", run_folder()};
  std::vector<std::string> other = again;
  other.insert(other.end(), {"--seed", "7"});
  EXPECT_THROW(Trainer(own_.machine(), options(other), {}), Error);
  EXPECT_FALSE(std::filesystem::exists(run_folder() + "/failure.json"));
  std::filesystem::resize_file(run_folder() + "/iter_0000001/config.toml", 10);
  EXPECT_THROW(Trainer(own_.machine(), options(again), {}), Error);
  EXPECT_TRUE(std::filesystem::exists(run_folder() + "/failure.json"));
}

// Hears the warnings of a run whose steps take 40 ms at least.
class SlowSink final : public RunSink {
 public:
  void on_message(LogLevel, std::string_view line) override {
    if (line.find("saves at its end only") != std::string_view::npos) ++warnings;
  }
  void on_part(const RunPart&) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int warnings = 0;
};

TEST_F(TrainerTest, WarnsOnceThatItSavesTooRarely) {
  SlowSink sink;
  Trainer trainer(own_.machine(), options({"--save", run_folder(), "--train-iters", "200000"}),
                  {&sink});
  trainer.step();
  EXPECT_EQ(sink.warnings, 0) << "a first step is slow";
  trainer.step();
  EXPECT_EQ(sink.warnings, 1);
  trainer.step();
  EXPECT_EQ(sink.warnings, 1);
}

// Two ranks as threads. What each threw: "" nothing, "(silent)" what another rank says.
std::vector<std::string> errors_of(const std::vector<PretrainOptions>& options) {
  std::vector<std::string> errors(options.size());
  test::run_ranks(static_cast<int>(options.size()), [&](World& world) {
    test::SmallMachine own(world);
    try {
      Trainer trainer(own.machine(), options[world.rank()], {});
    } catch (const ReportedByAnotherRank&) {
      errors[world.rank()] = "(silent)";
    } catch (const Error& error) {
      errors[world.rank()] = error.what();
    }
  });
  return errors;
}

TEST_F(TrainerTest, AnErrorBeforeTheFirstStepIsSaidOnceByTheLowestRankThatHasIt) {
  const PretrainOptions good = options();
  const PretrainOptions bad = test::small_options(folder_ / "nowhere");
  EXPECT_THAT(errors_of({good, good}), ElementsAre("", ""));
  EXPECT_THAT(errors_of({good, bad}), ElementsAre("(silent)", HasSubstr("[rank 1] ")));
  EXPECT_THAT(errors_of({bad, bad}), ElementsAre(HasSubstr("[rank 0] "), "(silent)"));
  // Of the plan, the folder and the checkpoint too.
  EXPECT_THAT(errors_of({options({"--seq-length", "100000"}), good}),
              ElementsAre(HasSubstr("--seq-length"), "(silent)"));
  const PretrainOptions lost = options({"--load", (folder_ / "nowhere").string()});
  EXPECT_THAT(errors_of({lost, lost}), ElementsAre(HasSubstr("nowhere"), "(silent)"));
}

TEST_F(TrainerTest, OnTwoRanksTrainsAsOnOneAndStopsOnBoth) {
  const std::vector<double> whole = losses(options(), 2);
  std::mutex mutex;
  test::run_ranks(2, [&](World& world) {
    test::SmallMachine own(world);
    EventSink sink;
    Trainer trainer(own.machine(), options(), {&sink});
    trainer.step();
    trainer.step();
    const int stop = trainer.agreed_stop(world.rank() == 1 ? 10 : 0).signal;
    const double loss = trainer.evaluate();
    trainer.finish();
    const std::lock_guard lock(mutex);
    EXPECT_EQ(stop, 10);
    EXPECT_GT(loss, 0);
    ASSERT_EQ(sink.losses.size(), 2);
    EXPECT_NEAR(sink.losses[0], whole[0], 1e-6);
    EXPECT_NEAR(sink.losses[1], whole[1], 1e-6);
    EXPECT_EQ(sink.started.rank, world.rank());
    EXPECT_EQ(sink.events.back(), "finish");
    if (world.rank() == 1) {
      EXPECT_THAT(sink.messages, IsEmpty()) << "the first rank speaks for all";
    }
  });
}

}  // namespace
}  // namespace piton
