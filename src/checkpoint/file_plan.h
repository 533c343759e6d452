// The layout of a checkpoint's files: which tensor is where, and what else a save writes
// tensors. The caller uses, in this order,
//
//   add_files  check_space  create_files  (the tensors and their hashes)  write_texts  publish
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace piton {

// Suffixes of folder names: of an unfinished save, and of a checkpoint that a save replaces.
inline constexpr const char* kUnfinished = ".tmp";
inline constexpr const char* kReplaced = ".replaced";

struct TensorFile {
  std::string name;
  std::string header;
  std::int64_t bytes = 0;
};

// Where everything is; the same on every rank.
struct FilePlan {
  std::vector<TensorFile> files;
  std::vector<StoredTensor> tensors;         // hashes still empty
  std::map<std::string, std::size_t> index;  // of a tensor, by name
};

// Divides the tensors into files "STEM-00001.safetensors", each closed when it reaches
// `file_bytes`.
void add_files(FilePlan& plan, const std::vector<CanonicalTensor>& tensors, const std::string& stem,
               std::int64_t file_bytes);

// Throws Error(kData) if the disk of `dir`, which need not exist yet, has no room for the files.
void check_space(const std::filesystem::path& dir, const FilePlan& plan);

// Creates `folder` again, with every tensor file in its full size and its header written.
void create_files(const std::filesystem::path& folder, const FilePlan& plan, const Disk& disk);

// Writes state.json, config.toml and the manifest; the plan must have its hashes.
void write_texts(const std::filesystem::path& folder, const FilePlan& plan, const TrainState& state,
                 const std::string& config, const Disk& disk);

// Renames the finished folder, then points the tracker of `dir` at it.
void publish(const std::filesystem::path& dir, const std::filesystem::path& unfinished,
             const std::filesystem::path& folder, std::int64_t iteration, const Disk& disk);

}  // namespace piton
