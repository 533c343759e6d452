#include "data/records/whole_text.h"

#include <algorithm>

#include "base/error.h"
#include "data/records/byte_order_mark.h"
#include "data/records/byte_stream.h"
#include "data/records/record_parser.h"

namespace piton {

namespace {

std::string shown_path(const std::string& path) { return path == "-" ? "standard input" : path; }

}  // namespace

std::string read_unpacked(const std::string& path, std::int64_t limit_bytes) {
  const auto stream = open_byte_stream(path);
  std::string text;
  char part[1 << 16];
  while (const std::size_t got = stream->read(part)) {
    text.append(part, got);
    if (std::ssize(text) > limit_bytes) {
      throw Error(Fault::kData, "{}: has more than {} bytes of text; divide it", shown_path(path),
                  limit_bytes);
    }
  }
  refuse_other_encodings(text, shown_path(path));
  text.erase(0, byte_order_mark(text));
  return text;
}

std::string read_whole_text(const std::string& path, std::int64_t limit_bytes) {
  std::string text = read_unpacked(path, limit_bytes);
  if (const auto at = first_bad_utf8(text); at != std::string::npos) {
    throw Error(Fault::kData,
                "{}: byte {} of the text (0x{:02x}) is not UTF-8; is it a text file? If it is, "
                "convert it with iconv -t UTF-8",
                shown_path(path), at, static_cast<unsigned char>(text[at]));
  }
  return text;
}

std::vector<std::string> read_whole_lines(const std::string& path) {
  const std::string text = read_whole_text(path);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::size_t next = end + 1;
    if (end > begin && text[end - 1] == '\r') --end;
    lines.push_back(text.substr(begin, end - begin));
    begin = next;
  }
  return lines;
}

}  // namespace piton
