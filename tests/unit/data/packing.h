// Packs bytes with each library, for tests.
#pragma once

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <string>
#include <string_view>

namespace piton {

inline void put_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string packed(const std::string& ending, std::string_view text) {
  std::string out(text.size() + text.size() / 50 + 1024, '\0');
  if (ending == ".gz") {
    z_stream state{};
    deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
    state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    state.avail_in = static_cast<uInt>(text.size());
    state.next_out = reinterpret_cast<Bytef*>(out.data());
    state.avail_out = static_cast<uInt>(out.size());
    deflate(&state, Z_FINISH);
    out.resize(out.size() - state.avail_out);
    deflateEnd(&state);
  } else if (ending == ".zst") {
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  } else if (ending == ".bz2") {
    auto size = static_cast<unsigned>(out.size());
    BZ2_bzBuffToBuffCompress(out.data(), &size, const_cast<char*>(text.data()),
                             static_cast<unsigned>(text.size()), 5, 0, 0);
    out.resize(size);
  } else if (ending == ".xz") {
    std::size_t size = 0;
    lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr,
                            reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                            reinterpret_cast<uint8_t*>(out.data()), &size, out.size());
    out.resize(size);
  } else {
    return std::string(text);
  }
  return out;
}

}  // namespace piton
