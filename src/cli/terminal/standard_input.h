// What standard input is connected to. What a command reads from it, or from a file:
// read_whole_text() (data/records/whole_text.h).
#pragma once

namespace piton::cli {

// True if input and output are terminals: a person types and reads.
bool is_conversation();

// True if standard input is a pipe or a file, not a terminal or /dev/null.
bool has_standard_input();

}  // namespace piton::cli
