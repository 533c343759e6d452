// Reads --load and writes --save for a run.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/background_save.h"
#include "checkpoint/store.h"
#include "session/machine.h"
#include "session/session.h"
#include "train/run/foreign_model.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_data.h"

namespace piton {

// A save that was written in the background, and is over on all ranks.
struct FinishedSave {
  std::int64_t iteration = 0;
  std::filesystem::path folder;  // empty if it failed
  std::optional<Error> error;
  double seconds = 0;         // from its start to its end
  double copy_seconds = 0;    // of that, training waited so long
  double waited_seconds = 0;  // for its end, by take_finished()
};

class RunCheckpoints {
 public:
  // All arguments must outlive it. `settled`: the resolved options.
  RunCheckpoints(const Machine& machine, Mesh& mesh, Session& session, PretrainOptions& settled)
      : machine_(machine),
        mesh_(mesh),
        session_(session),
        settled_(settled),
        copy_(machine.device) {}

  // All of these are collective. Each throws the same Error on every rank.

  struct ResumeRequest {
    const std::filesystem::path& checkpoint;
    // The state of a run that starts from the beginning. Its facts are compared with those of the
    // checkpoint, whose other facts are kept.
    const TrainState& fresh;
    std::int64_t train_iters = 0;  // of this run
  };
  // Loads all of a checkpoint, and returns its state. `damaged`: as of load_checkpoint().
  TrainState resume(const ResumeRequest& request, RunData& data, Log& log, bool* damaged);

  // Not collective. What resume() would return, without reading weights; with the same errors.
  static TrainState checked_state(const std::filesystem::path& checkpoint, PretrainOptions& settled,
                                  const TrainState& fresh, const RunData& data);

  // Loads only the weights, for a new run. `state`: of it; records where the weights come from.
  void start_from_weights(const std::filesystem::path& checkpoint, TrainState& state, Log& log,
                          bool* damaged);
  void start_from_foreign_weights(const ForeignModel& foreign, Log& log);
  // Continues `foreign.run`. Arguments as of resume().
  TrainState resume_foreign(const ForeignModel& foreign, const TrainState& fresh, Log& log);

  // Not collective: these checkpoints of --save are damaged. --keep does not count them.
  void set_damaged(std::vector<std::int64_t> iterations) { damaged_ = std::move(iterations); }

  // Throws Error(kData) if --save has no room for a checkpoint.
  void check_room();

  // Takes the memory for the copies of start_save(). Returns false if there is not enough.
  bool prepare_copy();

  // Returns the checkpoint's folder. The caller has checked that the corpora are unchanged, and no
  // save is in the background.
  std::filesystem::path save(TrainState& state, RunData& data);

  // The same in the background: the state is copied, and files are written while training
  // continues. Returns false if there is no memory for the copy; then nothing has been done.
  bool start_save(TrainState& state, RunData& data);
  // The save that start_save() began, once: when it is over on all ranks, which all ranks see at
  // the same call. `wait`: waits for its end. Nullopt if there is none, or it is not over. Throws
  // what the save threw that is not an Error(kData).
  std::optional<FinishedSave> take_finished(bool wait, Communicator& everyone);

  // Not collective: waits until no save is in the background, and drops its result.
  void await_background() { background_.reset(); }
  bool in_background() const { return background_ != nullptr; }
  std::int64_t copy_bytes() const { return copy_.bytes(); }  // memory of start_save()

 private:
  StoredModel stored_model();
  StoredModel saved_model();
  StoreContext context();
  void add_facts(TrainState& state, RunData& data) const;
  SaveOptions save_options(std::int64_t iteration);

  Machine machine_;
  Mesh& mesh_;
  Session& session_;
  PretrainOptions& settled_;
  std::vector<std::int64_t> damaged_;
  SaveCopy copy_;
  std::unique_ptr<BackgroundSave> background_;
  FinishedSave begun_;  // what is known of it
};

}  // namespace piton
