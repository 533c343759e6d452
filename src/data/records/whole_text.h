// A text file as a whole: what commands read that need no records (score, generate, embed, ...).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace piton {

// The bytes of `path`, "-" for standard input: unpacked (data/records/byte_stream.h), and without a
// byte order mark. Throws Error(kData) if it cannot be read, is damaged, or has more than
// `limit_bytes`.
std::string read_unpacked(const std::string& path,
                          std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

// The same of a text. Throws Error(kData) also if it is not UTF-8.
std::string read_whole_text(const std::string& path,
                            std::int64_t limit_bytes = std::int64_t{1} << 32);

// The lines of such a text, without their ends.
std::vector<std::string> read_whole_lines(const std::string& path);

}  // namespace piton
