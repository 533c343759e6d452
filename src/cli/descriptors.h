// The standard descriptors of this process.
#pragma once

namespace piton::cli {

// Opens /dev/null for those of 0, 1 and 2 that are closed. Otherwise the first file opened would
// get the number, and log lines or results would be written into it. Call this before anything is
// opened.
void open_standard_descriptors();

}  // namespace piton::cli
