// Opens a run: options, plan, folder, data, session, weights. Checks come first, before memory is
// allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "optim/learning_rate.h"
#include "optim/weight_decay.h"
#include "session/machine.h"
#include "session/session.h"
#include "text/tokenizer.h"
#include "train/record_files.h"
#include "train/reference_model.h"
#include "train/run/failure_report.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_checkpoints.h"
#include "train/run/run_data.h"
#include "train/run/run_folder.h"
#include "train/run/run_plan.h"
#include "train/run/run_planner.h"
#include "train/run_rollouts.h"
#include "train/run_saves.h"
#include "train/sample_prompts.h"
#include "train/sinks/metrics_sink.h"
#include "train/sinks/run_sink.h"
#include "train/sinks/tensorboard_sink.h"
#include "train/trace/run_timers.h"

namespace piton {

class TaskEvaluator;

// What the caller of a trainer may give.
struct TrainerInputs {
  OwnSamples samples = {};         // in place of the corpora that the options name
  RunPlanner* planner = nullptr;   // null: memory is not checked, and not chosen by
  TaskEvaluator* tasks = nullptr;  // null: --eval-tasks names none
};

// What a run is opened with. All of it must outlive the run.
struct RunOpening {
  const Machine& machine;
  Communicator& everyone;  // all ranks of the machine's world
  RunSinks& sinks;
  const TrainerInputs& inputs;
  RunTimers* timers = nullptr;  // --timing-log-level
};

// Whose --save's folder is.
enum class FolderClaim : std::uint8_t {
  kNone,
  kLocked,  // this run has the lock, and may be refused yet
  kOwned,   // it is this run's
};

// A run before its first step. Later members use earlier ones.
struct OpenedRun {
  // Of `options` the parts that the run follows: --skip-train leaves out some.
  explicit OpenedRun(const PretrainOptions& options);

  bool done() const { return state.iteration >= plan.train_iters; }
  // Successful updates so far, in whole batches: what the schedules go by.
  double place_in_schedule() const;

  PretrainOptions settled;  // with the value of every derived default
  FailureReport failures;
  std::unique_ptr<Tokenizer> tokenizer;
  RunPlan plan;
  TrainState state;
  std::unique_ptr<LearningRate> rate;
  std::unique_ptr<WeightDecay> decay;
  std::unique_ptr<Mesh> mesh;
  RecordCorpora records;  // of files in --data-path; of the first rank
  std::unique_ptr<RunData> data;
  std::unique_ptr<SamplePrompts> prompts;  // null: --sample-prompts is not given
  std::unique_ptr<RunRollouts> rollouts;   // null: another stage than grpo
  std::unique_ptr<Session> session;
  RunObjective objective;  // of the session
  FolderClaim claim = FolderClaim::kNone;
  std::unique_ptr<RunFolder> folder;  // of the first rank
  // Its destructor waits for the save in the background, before the folder's lock is released.
  std::unique_ptr<RunCheckpoints> checkpoints;
  std::unique_ptr<RunSaves> saves;
  std::unique_ptr<MetricsSink> metrics;          // of the first rank
  std::unique_ptr<TensorBoardSink> tensorboard;  // of the first rank
};

// Collective. Opens everything and loads or draws the weights; the sinks get messages, and those of
// files are added to them. `run` is filled in place: after an error it tells how far the opening
// came. Errors are thrown once for all ranks, as of Trainer.
void open_run(const RunOpening& opening, OpenedRun& run);

// Collective. The same up to the allocation, without writing anything (--dry-run), and says what
// the run would do. `run` has no session then.
void check_run(const RunOpening& opening, OpenedRun& run);

}  // namespace piton
