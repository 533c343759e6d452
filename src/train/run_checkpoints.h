// Reads --load and writes --save for a run.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/store.h"
#include "train/foreign_model.h"
#include "train/machine.h"
#include "train/pretrain_options.h"
#include "train/run_data.h"
#include "train/session.h"

namespace piton {

// The checkpoint or other program's folder to start from, or empty for random weights. --load may
// name
// --save's own folder before anything was saved there: the first start of a run that will be
// started again. Throws Error(kUsage) if --save has a run that would be overwritten, or if
// --finetune has no weights, or if --save is another program's folder.
std::filesystem::path checkpoint_to_load(const LoopOptions& loop, Log& notes);

class RunCheckpoints {
 public:
  // All arguments must outlive it. `settled`: the resolved options.
  RunCheckpoints(const Machine& machine, Mesh& mesh, Session& session, PretrainOptions& settled)
      : machine_(machine), mesh_(mesh), session_(session), settled_(settled) {}

  // All of these are collective. Each throws the same Error on every rank.

  // Loads all of `checkpoint`, and returns its state. `fresh`: the state of a run that starts anew;
  // its facts are compared with those of the checkpoint, whose other facts are kept. `train_iters`:
  // of this run.
  TrainState resume(const std::filesystem::path& checkpoint, const TrainState& fresh,
                    std::int64_t train_iters, RunData& data, Log& log);

  // Loads only the weights, for a new run.
  void start_from_weights(const std::filesystem::path& checkpoint, Log& log);
  void start_from_foreign_weights(const ForeignModel& foreign, Log& log);

  // Throws Error(kData) if --save has no room for a checkpoint.
  void check_room();

  // Returns the checkpoint's folder. The caller has checked that the corpora are unchanged.
  std::filesystem::path save(TrainState& state, RunData& data);

 private:
  StoredModel stored_model();
  StoreContext context();

  Machine machine_;
  Mesh& mesh_;
  Session& session_;
  PretrainOptions& settled_;
};

}  // namespace piton
