// Drafts: the names of files while they are being written. Removes those that a killed process has
// left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace piton {

// NAME.tmp-PROCESS in the folder of the file. AtomicFile writes to it until commit().
std::filesystem::path draft_path(const std::filesystem::path& file, std::int64_t process);

// Removes the drafts of these files with the process id `process`, which was killed. No other files
// are touched.
void remove_drafts(std::span<const std::filesystem::path> files, std::int64_t process);

}  // namespace piton
