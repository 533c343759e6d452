// Maps of characters as SentencePiece's models have them (text/unicode/charsmap.h), for tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace piton::test {

// The bytes of a Charsmap in which each node of the trie has 256 units to itself.
inline std::string charsmap_bytes(const std::map<std::string, std::string>& entries) {
  std::string replacements;
  std::map<std::string, std::size_t> bases{{"", 256}};  // of each prefix
  std::map<std::string, std::size_t> values;
  for (const auto& [key, replacement] : entries) {
    for (std::size_t n = 1; n <= key.size(); ++n) {
      bases.emplace(key.substr(0, n), 256 * (bases.size() + 1));
    }
    values[key] = replacements.size();
    replacements += replacement + '\0';
  }
  std::vector<std::uint32_t> units(256 * (bases.size() + 1));
  units[0] = 256U << 10;
  for (const auto& [prefix, base] : bases) {
    if (prefix.empty()) continue;
    const auto label = static_cast<unsigned char>(prefix.back());
    const std::size_t place = bases.at(prefix.substr(0, prefix.size() - 1)) ^ label;
    const bool is_key = values.contains(prefix);
    units[place] =
        static_cast<std::uint32_t>((place ^ base) << 10 | (is_key ? 0x100U : 0U) | label);
    if (is_key) units[base] = static_cast<std::uint32_t>(0x80000000U | values.at(prefix));
  }
  const auto size = static_cast<std::uint32_t>(units.size() * 4);
  std::string bytes(reinterpret_cast<const char*>(&size), 4);
  bytes.append(reinterpret_cast<const char*>(units.data()), size);
  return bytes + replacements;
}

}  // namespace piton::test
