#include "text/models/neighbors.h"

#include "text/unicode/utf8.h"

namespace piton {
namespace {

std::uint64_t key_of(char32_t a, char32_t b) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(a) << 32 | b;
}

std::uint64_t place(std::uint64_t key) {
  key *= 0x9E3779B97F4A7C15U;
  return key ^ key >> 32;
}

}  // namespace

void Neighbors::insert(std::uint64_t key) {
  const std::uint64_t mask = slots_.size() - 1;
  std::uint64_t slot = place(key) & mask;
  while (slots_[slot] != 0) {
    if (slots_[slot] == key) return;
    slot = (slot + 1) & mask;
  }
  slots_[slot] = key;
  ++used_;
}

void Neighbors::add_characters(char32_t a, char32_t b) {
  if (used_ * 2 >= slots_.size()) {
    std::vector<std::uint64_t> old(slots_.size() * 2);
    old.swap(slots_);
    used_ = 0;
    for (const std::uint64_t key : old) {
      if (key != 0) insert(key);
    }
  }
  insert(key_of(a, b));
}

void Neighbors::add(std::string_view piece) {
  Utf8Char before{kBadByte, 0};
  for (std::size_t at = 0; at < piece.size();) {
    const Utf8Char c = decode_utf8(piece, at);
    if (at > 0) {
      const auto last = static_cast<unsigned char>(piece[at - 1]);
      const auto first = static_cast<unsigned char>(piece[at]);
      if (before.value != kBadByte && c.value != kBadByte) {
        add_characters(before.value, c.value);
      } else {
        borders_.set(last * 256U + first);
      }
    }
    before = c;
    at += c.length;
  }
}

bool Neighbors::together(char32_t a, char32_t b) const {
  const std::uint64_t key = key_of(a, b);
  const std::uint64_t mask = slots_.size() - 1;
  std::uint64_t slot = place(key) & mask;
  while (slots_[slot] != 0 && slots_[slot] != key) slot = (slot + 1) & mask;
  return slots_[slot] != 0;
}

std::size_t Neighbors::first_part(std::string_view text) const {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  Utf8Char before = decode_utf8(begin, end);
  const char* p = begin + before.length;
  while (p < end) {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80 && before.value < 0x80) {
      before = {byte, 1};
      ++p;
      continue;
    }
    const Utf8Char c = decode_utf8(p, end);
    const bool characters = before.value != kBadByte && c.value != kBadByte;
    if (characters && !together(before.value, c.value) &&
        !borders_.test(static_cast<unsigned char>(p[-1]) * 256U + byte)) {
      break;
    }
    before = c;
    p += c.length;
  }
  return static_cast<std::size_t>(p - begin);
}

}  // namespace piton
