// libraries: piton_data_records
// Bytes as the README.md of a data set: its front matter is read or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "data/records/front_matter.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view page(reinterpret_cast<const char*>(data), size);
  try {
    piton::front_matter_value(page, "configs", "README.md");
  } catch (const piton::Error&) {
  }
  return 0;
}
