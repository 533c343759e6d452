// The message for a failed system call on a file, in one place.
#pragma once

#include <filesystem>
#include <string_view>

namespace piton {

// Throws Error(kData): "PATH: cannot DOING: text of errno `code`"; for a full disk also what to do.
[[noreturn]] void throw_file_failure(const std::filesystem::path& path, std::string_view doing,
                                     int code);

}  // namespace piton
