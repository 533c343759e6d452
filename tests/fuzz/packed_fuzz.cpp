// libraries: piton_data_records
// Any bytes as a packed file (gzip, zstd, bzip2, xz): an Error that names the file, or bytes that
// do not depend on the size of the reads.
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "data/records/byte_stream.h"
#include "fuzz/scratch_files.h"

namespace {

// A few kilobytes may unpack to gigabytes: only the first of them are looked at.
constexpr std::size_t kEnough = 1 << 20;

struct Unpacked {
  std::string bytes;
  std::string error;
};

Unpacked unpack(const std::string& file, std::size_t at_once) {
  Unpacked result;
  std::vector<char> buffer(at_once);
  try {
    const auto stream = piton::open_byte_stream(file);
    while (result.bytes.size() < kEnough) {
      const std::size_t got = stream->read(buffer);
      if (got == 0) return result;
      if (got > buffer.size()) std::abort();
      result.bytes.append(buffer.data(), got);
    }
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData);
    result.error = error.what();
    if (result.error.find(file) == std::string::npos) std::abort();
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string file =
      piton::scratch_file("packed", {reinterpret_cast<const char*>(data), size});
  const Unpacked large = unpack(file, 1 << 16);
  const Unpacked small = unpack(file, 61);
  // Bytes before an error may be fewer where the decoder checks a whole buffer first.
  if (large.error.empty() && large.bytes.size() < kEnough && small.bytes != large.bytes)
    std::abort();
  if (large.bytes.size() < kEnough && large.error.empty() != small.error.empty()) std::abort();
  return 0;
}
