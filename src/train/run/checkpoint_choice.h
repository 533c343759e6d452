// The checkpoint from which a run starts or resumes: the newest of --load, or under
// --allow-fallback the newest one that is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "train/run/pretrain_options.h"

namespace piton {

// The folder to load: --load, or the checkpoint of --ckpt-step in it. Throws Error(kUsage) for a
// step without a folder, and Error(kData) if there is no such checkpoint.
std::filesystem::path folder_to_load(const LoopOptions& loop);

// The first rank looks at the folder, so that all ranks take the same checkpoint.
class CheckpointChoice {
 public:
  // Collective. Arguments must outlive it. Throws Error(kUsage) if --save has a run that would be
  // overwritten, or if --finetune has no weights, or if --save is another program's folder;
  // Error(kData) if --load has no checkpoint.
  CheckpointChoice(const LoopOptions& loop, Communicator& ranks, Log& notes);

  // The checkpoint or other program's folder to start from, or empty for random weights. --load may
  // name --save's own folder before anything was saved there: the first start of a run that will be
  // started again.
  const std::filesystem::path& folder() const { return folder_; }
  // The checkpoints that were found damaged, newest first.
  const std::vector<std::int64_t>& skipped() const { return skipped_; }

  // Collective. folder() cannot be loaded, as `error` says, which is being handled. If another run
  // is training in --load, has saved since, and may have removed folder() (--keep), chooses its
  // newest checkpoint. Otherwise folder() is damaged: chooses the next older one and warns of it.
  // Throws `error` if there is none. Without --allow-fallback throws it with the older one's name.
  void fall_back(const Error& error);

 private:
  std::filesystem::path older() const;
  std::filesystem::path replacement() const;

  const LoopOptions& loop_;
  Communicator& ranks_;
  Log& notes_;
  std::filesystem::path folder_;
  std::filesystem::path newest_;  // of --load, at the last look
  int replaced_ = 0;              // how often it was another one by then
  std::vector<std::int64_t> skipped_;
};

}  // namespace piton
