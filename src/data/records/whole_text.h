// A text file as a whole: what commands read that need no records (score, generate, embed, ...).
#pragma once

#include <cstdint>
#include <string>

namespace piton {

// The text of `path`, "-" for standard input: unpacked (data/records/byte_stream.h), and without a
// byte order mark. Throws Error(kData) if it cannot be read, is damaged, has more than
// `limit_bytes`, or is not UTF-8.
std::string read_whole_text(const std::string& path,
                            std::int64_t limit_bytes = std::int64_t{1} << 32);

}  // namespace piton
