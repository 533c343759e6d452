// The standard descriptors of this process.
#pragma once

namespace piton::cli {

// Opens those of 0, 1 and 2 that are closed on /dev/null. Else the first file that is opened takes
// the number, and log lines or results are written into it. To be called before anything is opened.
void open_standard_descriptors();

}  // namespace piton::cli
