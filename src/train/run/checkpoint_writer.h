// What the rules of saving (train/run_saves.h) need of the files of checkpoints. RunCheckpoints
// writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "checkpoint/store.h"
#include "comm/communicator.h"

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

class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // Not collective. Throws Error(kData) if the data that the run reads has changed.
  virtual void check_data() = 0;

  // These are collective. Each throws the same Error on every rank.

  // Throws Error(kData) if --save has no room for a checkpoint.
  virtual void check_room() = 0;
  // Takes the memory for the copies of start_save(). Returns false if there is not enough.
  virtual bool prepare_copy() = 0;
  // Returns the checkpoint's folder. The caller has called check_data(), and no save is in the
  // background. Completes `state` by what the optimizer knows.
  virtual std::filesystem::path save(TrainState& state) = 0;
  // The same in the background: the state is copied, and files are written while training
  // continues. Returns false if there is no memory for the copy; then nothing has been done.
  virtual bool start_save(TrainState& state) = 0;
  // The save that start_save() began, once: when it is over on all ranks, which all ranks see at
  // the same call. `wait`: waits for its end. Nullopt if there is none, or it is not over. Throws
  // what the save threw that is not an Error(kData).
  virtual std::optional<FinishedSave> take_finished(bool wait, Communicator& everyone) = 0;

  // Not collective.
  virtual bool in_background() const = 0;
  virtual std::int64_t copy_bytes() const = 0;  // memory of start_save()
};

}  // namespace piton
