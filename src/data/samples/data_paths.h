// The paths of --data-path and its like, made independent of the working directory.
#pragma once

#include "data/samples/data_options.h"

namespace piton {

// `options` with absolute paths; weights and shares are unchanged.
DataOptions with_absolute_paths(DataOptions options);

}  // namespace piton
