// Text that a command reads: a file, or standard input where "-" is named or a pipe leads here.
#pragma once

#include <string>

namespace piton::cli {

// Both ends are a terminal: somebody types, and reads what comes.
bool is_conversation();

// A pipe or a file stands behind standard input, rather than a terminal or nothing (/dev/null).
bool has_standard_input();

// The text of `path`; of standard input for "-". Throws Error(kData) if it cannot be read.
std::string read_text(const std::string& path);

}  // namespace piton::cli
