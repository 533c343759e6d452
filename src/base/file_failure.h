// The one wording of a system call on a file that failed.
#pragma once

#include <filesystem>
#include <string_view>

namespace piton {

// Throws Error(kData): "PATH: cannot DOING: what the system says of errno `code`", and what to do
// where the disk is full.
[[noreturn]] void throw_file_failure(const std::filesystem::path& path, std::string_view doing,
                                     int code);

}  // namespace piton
