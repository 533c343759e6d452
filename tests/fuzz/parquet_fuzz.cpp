// libraries: piton_data_records
// Any bytes as a Parquet file: every row is read or named as bad, or an Error.
#include <cstdint>
#include <string_view>

#include "fuzz/read_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  piton::read_records(bytes, piton::InputFormat::kParquet, {"text"}, 1 << 20);
  return 0;
}
