// Map from byte strings to values that finds all keys with which a text begins: a hash table of
// (node, byte) -> node with open addressing.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace piton {

class Trie {
 public:
  static constexpr std::int32_t kRoot = 0;
  static constexpr std::int32_t kNone = -1;

  Trie() : values_(1, kNone), slots_(1024) { first_.fill(kNone); }

  // Values are not negative; the first of two equal keys keeps its value.
  void add(std::string_view key, std::int32_t value);

  // step(kRoot, byte), but faster.
  std::int32_t first(char byte) const { return first_[static_cast<unsigned char>(byte)]; }
  // The node after `byte`, or kNone.
  std::int32_t step(std::int32_t node, char byte) const { return step_to(node, byte).node; }
  // The same with value() of that node: one look into memory instead of two.
  struct Step {
    std::int32_t node = kNone;
    std::int32_t value = kNone;
  };
  Step step_to(std::int32_t node, char byte) const {
    const std::uint64_t key = key_of(node, byte);
    for (std::uint64_t slot = place(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return slots_[slot].to;
      if (slots_[slot].key == 0) return {};
    }
  }
  std::int32_t walk(std::int32_t node, std::string_view text) const {
    for (const char byte : text) {
      if (node == kNone) break;
      node = step(node, byte);
    }
    return node;
  }
  // The value of the key that ends at `node`, or kNone.
  std::int32_t value(std::int32_t node) const { return values_[static_cast<std::size_t>(node)]; }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Step to;
  };
  static std::uint64_t key_of(std::int32_t node, char byte) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 8 |
            static_cast<unsigned char>(byte)) +
           1;
  }
  std::uint64_t place(std::uint64_t key) const {
    key *= 0x9E3779B97F4A7C15U;
    return (key ^ key >> 32) & (slots_.size() - 1);
  }
  void grow();

  std::vector<std::int32_t> values_;
  std::vector<Slot> slots_;
  std::array<std::int32_t, 256> first_;
};

}  // namespace piton
