// 128 bits that stand for a text, or for a list of texts.
#pragma once

#include <compare>
#include <cstdint>
#include <string_view>

namespace piton {

struct ContentHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  // Chains: the hash of a list of texts, not of their concatenation.
  void add(std::string_view text);
  auto operator<=>(const ContentHash&) const = default;
};

}  // namespace piton
