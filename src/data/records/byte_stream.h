// Reads a file from start to end and unpacks it. gzip, zstd, bzip2 and xz are recognized by their
// first bytes, not by name; several members in a row are one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace piton {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills up to `out.size()` bytes, at least one; 0 at the end. Throws Error(kData) naming the
  // file, and the place within the packed bytes, if it cannot be read, is damaged, or ends early.
  virtual std::size_t read(std::span<char> out) = 0;
  // Bytes taken from the file so far (packed), for progress.
  virtual std::int64_t consumed_bytes() const = 0;
};

// `path` "-" is standard input.
std::unique_ptr<ByteStream> open_byte_stream(const std::string& path);

// The name without .gz, .zst, .bz2, .xz; its extension tells the format.
std::string unpacked_name(const std::string& path);

}  // namespace piton
