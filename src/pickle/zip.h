// Zip archives as PyTorch writes them: members are stored without compression, so that their bytes
// can be read in place. With the 64-bit sizes of APPNOTE 4.3.14.
//
// Nothing in a file is trusted. Error(kData) with file and member for: no end record, or one with a
// wrong place of the directory; sizes of 64 bits and of 32 bits that differ; a member that is
// compressed or encrypted, whose local header has another name or size than the directory, that
// overlaps the directory or another member, or that occurs twice. So a reader needs no more memory
// than the directory, and all members together are at most as large as the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "base/files/regular_file.h"

namespace piton {

struct ZipMember {
  std::string name;
  std::int64_t offset = 0;  // of its bytes in the archive
  std::int64_t bytes = 0;
  std::uint32_t crc = 0;  // CRC-32 of its bytes, as the directory has it
};

// True if it begins like an archive.
bool is_zip(const FilePart& file);

// The members, by name.
std::map<std::string, ZipMember> read_zip(const FilePart& file);

// The member's bytes, checked against its CRC. Throws Error(kData), also above `limit_bytes`.
std::string read_member(const FilePart& file, const ZipMember& member, std::int64_t limit_bytes);

// Writes an archive member by member. The bytes of each member begin at a multiple of 64 from the
// start of the archive.
class ZipWriter {
 public:
  // A file, which appears under its name at commit().
  explicit ZipWriter(const std::filesystem::path& path) : own_(path), file_(*own_) {}
  // An archive appended to a file, which outlives this and which the caller commits.
  explicit ZipWriter(AtomicFile& file) : file_(file), start_(file.size_bytes()) {}
  ZipWriter(ZipWriter&&) = delete;

  void begin(const std::string& name);
  void append(std::span<const std::byte> bytes);  // of the member that was begun last
  void end();
  void add(const std::string& name, std::string_view text);
  void commit();

 private:
  struct Written {
    ZipMember member;
    std::int64_t header = 0;  // where its local header is in the archive
  };
  std::int64_t size_bytes() const { return file_.size_bytes() - start_; }

  std::optional<AtomicFile> own_;
  AtomicFile& file_;
  std::int64_t start_ = 0;  // of the archive in the file
  std::vector<Written> members_;
};

}  // namespace piton
