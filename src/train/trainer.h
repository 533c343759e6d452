// A training run that a program controls: open, step, evaluate, save.
//
//   LogSink log(machine.log, {});
//   Trainer trainer(machine, options, {&log});
//   while (!trainer.done()) {
//     const StepMetrics metrics = trainer.step();
//     if (trainer.save_due()) trainer.save();
//   }
//   trainer.finish();
//
// It follows the rules of a run (--load, --save, what a resume compares, when to evaluate and
// save); the program decides when to stop. One object is one rank. Every call is collective over
// all ranks of the machine's world, in the same order, except simple queries.
//
// An error in a call ends the run: this rank writes failure.json into the run's folder (if it has
// one), tells the other ranks, and throws an Error that names the rank. Before the first step, and
// during saves, an error is thrown once for all ranks: by the lowest rank that has it, as
// ReportedByAnotherRank on the others.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/weight_decay.h"
#include "session/machine.h"
#include "session/run_sections.h"
#include "train/run/checkpoint_choice.h"
#include "train/run/failure_report.h"
#include "train/run/foreign_model.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_data.h"
#include "train/run/run_folder.h"
#include "train/run/run_plan.h"
#include "train/run/run_planner.h"
#include "train/sinks/metrics_sink.h"
#include "train/sinks/run_sink.h"
#include "train/sinks/tensorboard_sink.h"
#include "train/trace/run_timers.h"
#include "train/trace/run_trace.h"

namespace piton {

// Reasons to stop before the next step, agreed by all ranks.
struct StopRequest {
  int signal = 0;            // of the lowest rank that has one; 0: none
  bool out_of_time = false;  // --exit-duration-in-mins
};

// What the caller of a trainer may give.
struct TrainerInputs {
  OwnSamples samples = {};        // in place of the corpora that the options name
  RunPlanner* planner = nullptr;  // null: memory is not checked, and not chosen by
};

class Trainer {
 public:
  // Opens everything: checks what can be checked before memory is allocated, then makes the session
  // and loads or draws the weights. `sinks` must outlive it.
  Trainer(const Machine& machine, const PretrainOptions& options, std::vector<RunSink*> sinks,
          TrainerInputs inputs = {});
  // For --dry-run: what the constructor does up to the allocation, without writing anything. Tells
  // the sinks what the run would do.
  static void check(const Machine& machine, const PretrainOptions& options,
                    std::vector<RunSink*> sinks, TrainerInputs inputs = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One iteration: an update, and the evaluation that is due after it. Throws Error(kDiverged)
  // after --max-consecutive-skips updates in a row without finite gradients, and names the layer in
  // which backward met them first.
  StepMetrics step();

  // Mean loss over --eval-iters batches of the validation split. Throws Error(kUsage) if the run
  // has none, and Error(kData) if no token of them has a loss.
  double evaluate();

  // Saves a checkpoint of this state in --save, which is on the disk when this returns. Throws
  // Error(kUsage) without --save.
  void save();
  // The same between other saves: if it fails, as on a full disk, the run continues with a warning.
  // With --async-save it returns when the state is copied, and the files are written while training
  // continues. One save at a time: waits for the one before. A step() after its end, or the next of
  // these three calls, tells the sinks how it went.
  void save_if_possible();
  // Waits until no save is in the background.
  void finish_saves();

  // Waits for a save in the background, and tells the sinks that the run ended well. Throws
  // Error(kDiverged) if it has done all its steps, or those to --exit-interval, and ends without
  // finite losses or gradients.
  void finish();

  // The stop request that the ranks agree on. `signal`: this rank's, or 0.
  StopRequest agreed_stop(int signal);

  // These are not collective.
  bool done() const { return state_.iteration >= plan_.train_iters; }
  bool save_due() const;  // --save-interval, --save-interval-in-mins and the end of the run
  bool exit_due() const;  // --exit-interval
  bool is_saved() const { return saved_iteration_ == state_.iteration; }
  const TrainState& state() const { return state_; }
  const RunPlan& plan() const { return plan_; }
  Session& session() { return *session_; }

 private:
  enum class Extent : std::uint8_t { kRun, kCheck };
  Trainer(const Machine& machine, const PretrainOptions& options, std::vector<RunSink*> sinks,
          TrainerInputs inputs, Extent extent);

  template <typename Work>
  auto guarded(Work&& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      report(error);
      throw;
    }
  }
  template <typename Work>
  void together(Work&& work);
  void say(const std::string& line) { sinks_.info(line); }
  void report(const std::exception& error);

  void open();
  void continue_started_run();
  void check_all();
  void check_before_allocation();
  void open_data();
  void say_model();
  void say_options();
  void say_plan();
  void open_tokenizer_and_plan();
  void choose_recomputation();
  void make_schedules();
  void log_kernel_differences();
  void take_folder(bool may_create);
  void warn_of_zero_rate();
  double place_in_schedule() const;
  void load_or_draw();
  void load(CheckpointChoice& choice);
  void load_one(const std::filesystem::path& checkpoint, bool* damaged);
  void warn_if_not_saving();
  void open_figures();
  RunStart start() const;

  StepMetrics one_step();
  void check_that_it_ends_well() const;
  std::vector<MicroBatch> next_batch();
  bool log_due() const;
  StepMetrics measured(const StepReport& report, std::int64_t batch, double seconds) const;
  void count_skips(const StepReport& report);
  std::optional<double> run_evaluation();
  std::string no_validation_loss() const;
  void check_corpora();
  void check_save_time();
  void begin_save();
  void write_checkpoint();
  void prepare_background_saves();
  void no_copy();
  bool write_in_background();
  void settle_background_save(bool wait);
  std::vector<TimerTimes> save_times();
  void report_outcome(const FinishedSave& finished, std::vector<TimerTimes> timers);
  void warn_of_failed_save(std::int64_t iteration, const Error& error);
  void warn_of_rare_saves(double seconds_per_step);

  std::chrono::steady_clock::time_point created_;
  std::unique_ptr<RunTrace> trace_;    // --trace
  std::unique_ptr<RunTimers> timers_;  // --timing-log-level
  RunSections sections_;               // what these two observe
  Machine machine_;
  PretrainOptions options_;
  PretrainOptions settled_;              // with the value of every derived default
  std::optional<ForeignModel> foreign_;  // --load is a folder of another program
  RunSinks sinks_;
  FailureReport failure_report_;
  std::unique_ptr<Communicator> everyone_;
  std::unique_ptr<Tokenizer> tokenizer_;
  RunPlan plan_;
  TrainState state_;
  std::unique_ptr<LearningRate> rate_;
  std::unique_ptr<WeightDecay> decay_;
  std::unique_ptr<Mesh> mesh_;
  RunPlanner* planner_;  // may be null
  OwnSamples own_samples_;
  std::unique_ptr<RunData> data_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::unique_ptr<RunFolder> folder_;  // of the first rank
  std::unique_ptr<MetricsSink> metrics_;
  std::unique_ptr<TensorBoardSink> tensorboard_;
  bool same_command_ = false;  // that started the run from another program's folder, again
  bool locked_ = false;        // on every rank: the folder's lock is this run's
  bool owns_folder_ = false;   // --save's folder is this run's
  double peak_flops_ = 0;      // of one rank
  std::int64_t started_at_ = 0;
  std::int64_t timed_at_ = 0;              // iteration of the last times in the log
  std::int64_t evaluation_ = 0;            // batch of the evaluation under way, from 1; 0: none
  std::int64_t consecutive_skips_ = 0;     // but those by which the loss scale finds its place
  std::optional<double> validation_loss_;  // the newest
  std::optional<std::int64_t> saved_iteration_;      // of the checkpoint in --save's folder
  std::optional<std::int64_t> saving_iteration_;     // of the save in the background
  bool time_to_save_ = false;                        // --save-interval-in-mins
  std::chrono::steady_clock::time_point last_save_;  // its begin, or that of the first step
  bool saves_in_background_ = false;                 // --async-save, and there is memory for it
};

}  // namespace piton
