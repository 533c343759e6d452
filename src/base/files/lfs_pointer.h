// What git without its LFS extension leaves in place of a large file.
#pragma once

#include "base/files/regular_file.h"

namespace piton {

// Throws Error(kData) that says how to get the file itself.
void refuse_lfs_pointer(const RegularFile& file);

}  // namespace piton
