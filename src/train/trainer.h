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

#include "session/machine.h"
#include "session/run_sections.h"
#include "train/open_run.h"
#include "train/run/pretrain_options.h"
#include "train/run_faults.h"
#include "train/sinks/run_sink.h"
#include "train/skip_rules.h"
#include "train/trace/run_timers.h"
#include "train/trace/run_trace.h"

namespace piton {

struct TaskTexts;  // run/task_evaluator.h

// Reasons to stop before the next step, agreed by all ranks.
struct StopRequest {
  int signal = 0;            // of the lowest rank that has one; 0: none
  bool out_of_time = false;  // --exit-duration-in-mins
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
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // One iteration: those of --iterations-to-skip before it, an update, and the evaluation that is
  // due after it. Throws Error(kDiverged) after --max-consecutive-skips updates in a row without
  // finite gradients, and names the layer in which backward met them first, and by
  // --loss-watchdog-threshold; with --rollback-on-divergence the run goes back in their place.
  StepMetrics step();

  // Mean loss over --eval-iters batches of the validation split, of all its sets. Throws
  // Error(kUsage) if the run has none, and Error(kData) if no token of them has a loss.
  double evaluate();

  // The same of the test split, from its first batch: what a run says when it is over. Nullopt if
  // the run has none, or no token of it has a loss.
  std::optional<double> test();

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
  bool done() const { return run_.done(); }
  // By --save-interval, --save-interval-in-mins, --keep-best, or the end of the run.
  bool save_due() const { return run_.saves->due(); }
  bool exit_due() const;     // --exit-interval
  bool stops_early() const;  // --early-stopping-patience; also if it stopped before a resume
  bool is_saved() const { return run_.saves->is_saved(); }
  const TrainState& state() const { return run_.state; }
  const RunPlan& plan() const { return run_.plan; }
  Session& session() { return *run_.session; }

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
  Machine own_machine(const Machine& given);  // which faults_ and trace_ observe
  void report(const std::exception& error);
  void begin();
  void record_steps();
  void skip_listed();
  StepMetrics one_step();
  StepReport update(std::int64_t batch);
  void undo_if_diverged(const StepReport& report);
  std::vector<MicroBatch> next_batch();
  RolloutModels rollout_models();
  std::int64_t row_length() const;
  StepMetrics measured(const StepReport& report, std::int64_t batch, double seconds) const;
  bool log_due() const;
  void log_completions();
  void check_tasks() const;
  TaskTexts task_texts() const;
  std::vector<PromptAnswer> answer_prompts();
  std::vector<TaskFigure> evaluate_tasks();
  std::vector<RunValidation> run_evaluation(HeldOutSet set);
  std::optional<double> report_evaluation(HeldOutSet set);
  std::string no_validation_loss() const;
  void check_that_it_ends_well() const;

  std::chrono::steady_clock::time_point created_;
  std::unique_ptr<RunFaults> faults_;  // --fault
  std::unique_ptr<RunTrace> trace_;    // --trace
  std::unique_ptr<RunTimers> timers_;  // --timing-log-level
  RunSections sections_;               // what these two observe
  Machine machine_;
  TrainerInputs inputs_;
  RunSinks sinks_;
  std::unique_ptr<Communicator> everyone_;
  OpenedRun run_;
  std::optional<SkipRules> skips_;
  double peak_flops_ = 0;                  // of one rank; 0: not measured
  std::int64_t started_at_ = 0;            // iteration
  std::int64_t timed_at_ = 0;              // iteration of the last times in the log
  std::int64_t evaluation_ = 0;            // batch of the evaluation under way, from 1; 0: none
  std::optional<double> validation_loss_;  // the newest
};

}  // namespace piton
