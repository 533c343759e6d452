// Saves and loads a run: one global checkpoint for all layouts (contents: checkpoint/manifest.h).
//
// A SAVE is atomic. Rank 0 creates the files in DIR/iter_NNNNNNN.tmp; every rank writes the parts
// it holds at their canonical places, hashes its share of the tensors, and syncs; then rank 0
// renames the folder and finally replaces the tracker. After a crash at any point, the previous
// checkpoint is loaded; the next save removes what the crashed one left. Nothing is gathered: a
// save needs memory for one more parameter. Hashes are computed from the bytes in memory as they
// are written. A tensor with several writers is read back and compared with the hashes of its
// parts; with SaveOptions::verify every tensor is.
//
// A LOAD reads runs of elements (checkpoint/tensor_source.h), so any layout reads any checkpoint,
// and each rank reads only what it stores (under ZeRO, its part of a unit). Manifest and headers
// are checked first. The bytes of every tensor are checked against their hash by one rank: as it
// reads them, where it reads the whole tensor, so that they are read once. If one is wrong, the
// load fails on all ranks, and values are then partly set. Files are read by calls, not
// memory-mapped: a file that is truncated meanwhile is an error.
//
// Saves use a separate communicator group, so that their messages never mix with those of a
// step or a load. So the files may also be written while training continues
// (checkpoint/background_save.h).
//
// Both are collective over all ranks of the mesh. A fault on one rank (a full disk, a changed byte)
// is thrown on all of them, with the rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "comm/mesh.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"

namespace piton {

// What is saved from, or loaded into, this rank.
struct StoredModel {
  std::vector<Parameter*> parameters;
  // Null: values are resident in Parameter::value (generation, scoring).
  ShardedParameters* sharded = nullptr;
  // Null: only the weights.
  Optimizer* optimizer = nullptr;
};

struct StoreContext {
  Mesh& mesh;
  Device& device;
  Arena& arena;
  Stream& stream;
  ThreadPool* threads = nullptr;  // that read a checkpoint into host memory; null: the caller alone
};

struct SaveOptions {
  std::int64_t file_bytes = std::int64_t{4} << 30;  // a tensor file is closed when it reaches this
  int keep = 0;                      // checkpoints to keep in DIR, including this one; 0: all
  std::int64_t retain_interval = 0;  // multiples are kept in addition to these; 0: none
  // Of the lowest validation loss: kept in addition, and named in DIR/kBestName. Absent: none is.
  std::optional<std::int64_t> best = {};
  std::vector<std::int64_t> damaged;  // of DIR, which are not counted
  bool verify = false;                // read every tensor back from the disk and compare
  DiskHook hook;                      // for tests
};

// The group of saves, created on first use, which is collective (comm/mesh.h).
Communicator& save_group(Mesh& mesh);

// What is saved in addition to the tensors, and where.
struct SaveOrder {
  std::filesystem::path dir;
  TrainState state;    // the optimizer's progress is taken from the optimizer, if there is one
  std::string config;  // the resolved options, stored as config.toml
  SaveOptions options;
  // Called on the first rank, maybe by another thread, when the folder is whole but for its name:
  // adds files for other programs, which a load does not read. What it throws ends the save.
  std::function<void(const std::filesystem::path& folder)> add_files = {};
};

// Saves as DIR/iter_NNNNNNN, NNNNNNN being state.iteration; replaces one of that number. Returns
// the folder. Throws Error(kData): disk full (checked before the first byte), not writable.
std::filesystem::path save_checkpoint(const StoredModel& model, const StoreContext& context,
                                      SaveOrder order);

// `state` with what the optimizer, if the model has one, says of its progress.
TrainState with_progress(TrainState state, const StoredModel& model);

// Collective. Throws Error(kData) if DIR (which need not exist yet) has no room for one more
// checkpoint of the model. Called before a run's first step.
void check_room(const std::filesystem::path& dir, const StoredModel& model,
                const StoreContext& context, const SaveOptions& options = {});

// The iteration that DIR's tracker names; nullopt if there is no tracker (nothing was saved yet).
std::optional<std::int64_t> latest_iteration(const std::filesystem::path& dir);

// The folder of one checkpoint: `path` itself if it has a manifest, else the folder that its
// tracker names. Throws Error(kData) if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// The newest folder of a checkpoint in DIR that is older than `iteration`; nullopt: of all. Whether
// it is whole shows when it is loaded.
std::optional<std::filesystem::path> older_checkpoint(const std::filesystem::path& dir,
                                                      std::optional<std::int64_t> iteration);

// Loads weights and, if the model has an optimizer, its state and its steps. Throws Error(kData)
// with a list of the tensors that are changed, missing, unknown, or of another shape. Weights of
// another floating type are converted, but not if optimizer state is loaded. If weights are loaded
// without the optimizer of the model, call Optimizer::reset_main() afterwards. `damaged`: before it
// throws, set to whether the files are not what was saved; if not, the model is another one. Then
// values may be partly set: another load sets all of them.
TrainState load_checkpoint(const std::filesystem::path& folder, const StoredModel& model,
                           const StoreContext& context, bool* damaged = nullptr);

// Printed by `inspect --hash`: hash_of() after reading and checking every byte of that kind. "" if
// the checkpoint has no optimizer state.
std::string weights_hash(const std::filesystem::path& folder);
std::string optimizer_hash(const std::filesystem::path& folder);

}  // namespace piton
