#include "text/jinja/values/strings.h"

#include <algorithm>

#include "text/unicode/characters.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

bool is_ascii(std::string_view text) { return ascii_end(text, 0) == text.size(); }

}  // namespace

std::int64_t character_count(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); });
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = decode_utf8(text, at).length;
    found.push_back(text.substr(at, size));
    at += size;
  }
  return found;
}

std::size_t byte_of(std::string_view text, std::int64_t index) {
  if (static_cast<std::uint64_t>(index) >= text.size()) return text.size();
  if (is_ascii(text)) return static_cast<std::size_t>(index);
  std::size_t at = 0;
  while (at < text.size() && index-- > 0) at += decode_utf8(text, at).length;
  return at;
}

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  const auto unwanted = [&](char32_t value, std::string_view bytes) {
    if (!chars) return is_space(value);
    // A well-formed character is found only where one begins.
    return chars->find(bytes) != std::string_view::npos;
  };
  while (side != Side::kRight && !text.empty()) {
    const Utf8Char c = decode_utf8(text, 0);
    if (!unwanted(c.value, text.substr(0, c.length))) break;
    text.remove_prefix(c.length);
  }
  while (side != Side::kLeft && !text.empty()) {
    const Utf8Char c = decode_utf8_back(text);
    if (!unwanted(c.value, text.substr(text.size() - c.length))) break;
    text.remove_suffix(c.length);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    std::int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text.remove_prefix(at + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_words(std::string_view text, std::int64_t most,
                                          bool from_right) {
  std::vector<std::string_view> parts;
  const Side near = from_right ? Side::kRight : Side::kLeft;
  text = strip(text, near);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    std::size_t size = 0;  // of the word
    while (size < text.size()) {
      const Utf8Char c = from_right ? decode_utf8_back(text.substr(0, text.size() - size))
                                    : decode_utf8(text, size);
      if (is_space(c.value)) break;
      size += c.length;
    }
    parts.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    text = from_right ? text.substr(0, text.size() - size) : text.substr(size);
    text = strip(text, near);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 0xA && c <= 0xD) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    std::size_t end = at + c.length;
    if (ends_line(c.value)) {
      if (c.value == '\r' && end < text.size() && text[end] == '\n') ++end;
      lines.push_back(text.substr(begin, (keep_ends ? end : at) - begin));
      begin = end;
    }
    at = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t most) {
  std::string out;
  std::int64_t done = 0;
  const auto more = [&] { return most < 0 || done < most; };
  if (from.empty()) {
    for (const std::string_view c : characters(text)) {
      if (more()) {
        out += to;
        ++done;
      }
      out += c;
    }
    if (more()) out += to;
    return out;
  }
  std::size_t begin = 0;
  while (more()) {
    const std::size_t at = text.find(from, begin);
    if (at == std::string_view::npos) break;
    out.append(text, begin, at - begin);
    out += to;
    begin = at + from.size();
    ++done;
  }
  out.append(text, begin);
  return out;
}

}  // namespace piton::jinja
