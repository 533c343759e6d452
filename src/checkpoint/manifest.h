// The contents of a checkpoint: manifest.json and state.json, and the names of files and folders.
//
//   DIR/latest_checkpointed_iteration.txt   "1000\n": the checkpoint to load; written last
//   DIR/best_checkpointed_iteration.txt     the same, of the lowest validation loss (--keep-best)
//   DIR/iter_0001000/
//     model-00001.safetensors ...           weights in their own type, under canonical names
//     optimizer-00001.safetensors ...       fp32 or bf16: "exp_avg.NAME", "exp_avg_sq.NAME" of
//                                           adam; fp32: "momentum_buffer.NAME" of sgd, and where
//                                           the model's weights are 16-bit "main.NAME"; fp16
//                                           "exp_avg.NAME" and "exp_avg_scale.NAME" of cadam
//     state.json                            TrainState
//     config.toml                           the run's resolved options
//     manifest.json                         everything above with sizes and hashes
//
// Tensors are canonical: q, k, v, gate and up separate, [out, in], without padding rows, tied
// weights once. So the files do not depend on the layout that wrote them. Every byte is covered by
// a hash (XXH3-128): each tensor has its own, headers and small files have theirs in the manifest,
// and the manifest has its own in its last line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/regions.h"
#include "checkpoint/safetensors.h"

namespace piton {

inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kBestName = "best_checkpointed_iteration.txt";
inline constexpr const char* kTrackerName = "latest_checkpointed_iteration.txt";
inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.json";
inline constexpr const char* kConfigName = "config.toml";
inline constexpr const char* kMainPrefix = "main.";

// "iter_0001000"; seven digits at least.
std::string iteration_folder(std::int64_t iteration);
// The number in such a name; nullopt for other names.
std::optional<std::int64_t> iteration_of(const std::string& folder);

// Progress of a run. What follows from it (data order, masks, learning rate) is not stored.
struct TrainState {
  std::int64_t iteration = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t consumed_tokens = 0;
  std::int64_t optimizer_steps = 0;  // successful updates
  std::int64_t skipped_steps = 0;
  // Samples of successful updates: the position in the schedules of learning rate and weight decay.
  // Empty in checkpoints of earlier versions, where it is optimizer_steps x the global batch size.
  std::optional<std::int64_t> scheduled_samples;
  double loss_scale = 1;  // of the next step; changed by the two counts below
  std::int64_t good_updates = 0;
  std::int64_t hysteresis_left = 0;   // may be below 0
  std::vector<double> spike_history;  // of the spike rule; empty: none
  std::uint64_t seed = 0;
  double learning_rate = 0;  // of the last step, for the log
  double lm_loss = 0;        // of the last step, for the log; may be NaN
  // Other facts to remember or to compare on resume, e.g. sizes and hashes of data files.
  std::map<std::string, std::string> facts;

  bool operator==(const TrainState&) const = default;
};

std::string to_json(const TrainState& state);
// Throws Error(kData) naming `where` and the field.
TrainState parse_train_state(const std::string& text, const std::string& where);

struct StoredTensor {
  CanonicalTensor tensor;
  std::string file;
  std::int64_t offset = 0;  // of its first byte in the file
  std::int64_t bytes = 0;
  std::string hash;  // XXH3-128 of its bytes, 32 hex digits
};

struct StoredFile {
  std::string name;
  std::int64_t bytes = 0;
  // Bytes from the start that `hash` covers: all, or the header of a tensor file.
  std::int64_t hashed_bytes = 0;
  std::string hash;
};

struct Manifest {
  std::int64_t iteration = 0;
  std::vector<StoredTensor> tensors;  // by file and offset
  std::vector<StoredFile> files;

  bool has_optimizer() const;
};

std::string to_json(const Manifest& manifest);
// Checks the hash, the version and every field. Throws Error(kData) with `where`.
Manifest parse_manifest(const std::string& text, const std::string& where);

// Reads and parses the manifest of `folder`. Throws Error(kData) if there is none: the folder is
// not a checkpoint, or its save never finished.
Manifest read_manifest(const std::filesystem::path& folder);
// Both check the file against the manifest.
TrainState read_state(const std::filesystem::path& folder, const Manifest& manifest);
std::string read_config(const std::filesystem::path& folder, const Manifest& manifest);

// Hash over (name, type, shape, hash) of the tensors of one kind, by name: it does not depend on
// the layout or on the division into files.
std::string hash_of(const Manifest& manifest, TensorKind kind);

// XXH3-128 as 32 hex digits.
std::string hash_bytes(std::span<const std::byte> bytes);

}  // namespace piton
