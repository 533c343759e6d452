// The standard descriptors of this process.
#pragma once

namespace piton::cli {

// Opens /dev/null for those of 0, 1 and 2 that are closed. Otherwise the first file opened would
// get the number, and log lines or results would be written into it. Call this before anything is
// opened.
void open_standard_descriptors();

// Puts /dev/null in the place of standard output and error if nobody reads them any more: a pipe
// whose reader has ended, a terminal that is gone. Returns whether one of them was such. For a
// command whose log may end before its work; it must ignore SIGPIPE.
bool replace_unread_output();

}  // namespace piton::cli
