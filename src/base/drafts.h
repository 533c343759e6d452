// What a file is called while it is being written, and what a process that was killed left of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace piton {

// NAME.tmp-PROCESS, beside the file: where AtomicFile puts its bytes before commit().
std::filesystem::path draft_path(const std::filesystem::path& file, std::int64_t process);

// Removes the drafts of these files that `process` left when it was killed. Nothing else goes, so a
// file that merely has such a name survives unless it has this very number.
void remove_drafts(std::span<const std::filesystem::path> files, std::int64_t process);

}  // namespace piton
