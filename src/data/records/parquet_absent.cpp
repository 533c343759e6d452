// A build without Apache Arrow.
#include "base/error.h"
#include "data/records/block_reader.h"

namespace piton {

bool can_read_parquet() { return false; }

std::unique_ptr<ColumnReader> open_parquet(const std::string& path) {
  throw Error(
      Fault::kUsage,
      "{}: this build cannot read Parquet: Apache Arrow was not found when it was configured; "
      "install libarrow-dev and libparquet-dev (or: pip install pyarrow, and configure with "
      "-DPITON_PYARROW=$(python3 -c 'import pyarrow; print(pyarrow.__path__[0])')) and build again",
      path);
}

}  // namespace piton
