// libraries: piton_data_records
// Bytes as WikiExtractor and MediaWiki files: every record is read or named as bad, and records do
// not depend on the size of the blocks that the file is cut into.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fuzz/read_records.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto format : {piton::InputFormat::kWikiExtractor, piton::InputFormat::kWikiXml}) {
    const std::string small = piton::read_records(bytes, format, {"id", "title", "text"}, 16);
    const std::string large = piton::read_records(bytes, format, {"id", "title", "text"}, 1 << 20);
    if (small != large) std::abort();
  }
  return 0;
}
