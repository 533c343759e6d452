// 128-bit hash of a text, or of a list of texts.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace piton {

struct ContentHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  // Adds one text of a list. The hash of a list differs from that of the joined texts.
  void add(std::string_view text);
  auto operator<=>(const ContentHash&) const = default;
};

}  // namespace piton
