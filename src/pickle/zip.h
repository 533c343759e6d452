// Zip archives as PyTorch writes them: members are stored, not compressed, so that their bytes can
// be read in place. With the 64-bit sizes of APPNOTE 4.3.14.
//
// Nothing of a file is trusted. Each is Error(kData) that names the file and the member: no end
// record or one that lies about where the directory is; a member that is compressed or encrypted,
// whose local header says another name or size than the directory, that reaches into the directory
// or into another member, or that is there twice. So a reader takes no more memory than the
// directory, and the sum of all members is at most the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/regular_file.h"

namespace piton {

struct ZipMember {
  std::string name;
  std::int64_t offset = 0;  // of its bytes in the file
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;  // CRC-32 of its bytes, as the directory has it
};

// Begins as an archive does.
bool is_zip(const RegularFile& file);

// The members, by name.
std::map<std::string, ZipMember> read_zip(const RegularFile& file);

// The member's bytes, checked against its CRC. Throws Error(kData), also above `limit_bytes`.
std::string read_member(const RegularFile& file, const ZipMember& member, std::int64_t limit_bytes);

// Writes an archive member by member; it appears under its name at commit(). The bytes of each
// begin at a multiple of 64.
class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path) : file_(path) {}

  void begin(const std::string& name);
  void append(std::span<const std::byte> bytes);  // of the member that was begun last
  void end();
  void add(const std::string& name, std::string_view text);
  void commit();

 private:
  struct Written {
    ZipMember member;
    std::int64_t header = 0;  // where its local header is
  };
  AtomicFile file_;
  std::vector<Written> members_;
};

}  // namespace piton
