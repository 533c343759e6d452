// A build without Apache Arrow.
#include "base/error.h"
#include "data/records/block_reader.h"
#include "data/records/parquet_rows.h"

namespace piton {

namespace {

[[noreturn]] void refuse_parquet(const std::string& path) {
  throw Error(
      Fault::kUsage,
      "{}: this build cannot read Parquet: Apache Arrow was not found when it was configured; run "
      "make again where there is pip (apt-get install python3-pip) and a network: it fetches Arrow "
      "into the build folder",
      path);
}

}  // namespace

bool can_read_parquet() { return false; }

std::unique_ptr<ColumnReader> open_parquet(const std::string& path) { refuse_parquet(path); }

std::vector<nlohmann::json> read_parquet_rows(const std::string& path) { refuse_parquet(path); }

}  // namespace piton
