// The mark that some editors write before a text. In UTF-8 it is no part of the text; another one
// says that the text is in another encoding.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace piton {

// The bytes that a byte order mark takes at the beginning of `text`; 0: there is none.
inline std::size_t byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? kMark.size() : 0;
}

// Throws Error(kData) if the bytes `head` of the file begin a text in UTF-16 or UTF-32, which no
// reader here decodes.
inline void refuse_other_encodings(std::string_view head, const std::string& path) {
  using namespace std::string_view_literals;
  std::string_view encoding;
  if (head.starts_with("\xFF\xFE\0\0"sv) || head.starts_with("\0\0\xFE\xFF"sv))
    encoding = "UTF-32";
  else if (head.starts_with("\xFF\xFE"sv) || head.starts_with("\xFE\xFF"sv))
    encoding = "UTF-16";
  if (encoding.empty()) return;
  throw Error(Fault::kData,
              "{}: is a text in {} (as its byte order mark says), wanted UTF-8; convert it with "
              "iconv -f {} -t UTF-8",
              path, encoding, encoding);
}

}  // namespace piton
