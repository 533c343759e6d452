// Text input of a command: a file, or standard input if "-" is given or a pipe is connected.
#pragma once

#include <string>

namespace piton::cli {

// True if input and output are terminals: a person types and reads.
bool is_conversation();

// True if standard input is a pipe or a file, not a terminal or /dev/null.
bool has_standard_input();

// Reads `path`, or standard input for "-". Throws Error(kData) if it cannot be read.
std::string read_text(const std::string& path);

}  // namespace piton::cli
