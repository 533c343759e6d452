// libraries: piton_pickle
// Any bytes as a zip archive: its members, each inside the file and read against its checksum, or
// an Error.
#include <cstdint>

#include "base/error.h"
#include "fuzz/scratch_files.h"
#include "pickle/zip.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const piton::RegularFile file(piton::scratch_file("x.zip", bytes));
  std::map<std::string, piton::ZipMember> members;
  try {
    piton::is_zip(file);
    members = piton::read_zip(file);
  } catch (const piton::Error& error) {
    PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
  }
  std::int64_t all = 0;
  for (const auto& [name, member] : members) {
    PITON_ASSERT(member.offset >= 0 && member.bytes >= 0 &&
                 member.offset + member.bytes <= file.size_bytes());
    all += member.bytes;
    try {
      const std::string content = piton::read_member(file, member, file.size_bytes());
      PITON_ASSERT(static_cast<std::int64_t>(content.size()) == member.bytes);
    } catch (const piton::Error& error) {
      PITON_ASSERT(error.fault() == piton::Fault::kData, "{}", error.what());
    }
  }
  PITON_ASSERT(all <= file.size_bytes());
  return 0;
}
