// Cache of the ids of short words. Words repeat in natural text, and a lookup is ten times cheaper
// than merging.
//
// Two tables. Words of at most 15 bytes and 3 ids are in 32-byte slots, two per cache line: the
// word used last is in the first slot, and a new word replaces the second. Words of at most 31
// bytes and 7 ids have one line each, and a new word replaces the old one. The short table has 4
// MiB: with 2 MiB, web text with its names evicts so many words that preprocess is a fifth slower.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace piton {

class WordCache {
 public:
  static constexpr std::size_t kShortBytes = 15;
  static constexpr std::size_t kLongBytes = 31;
  static constexpr std::size_t kShortIds = 3;
  static constexpr std::size_t kLongIds = 7;

  struct ShortSlot {
    std::uint64_t low = 0;
    std::uint64_t high = 0;  // the top byte is the length; 0 never occurs
    std::int32_t ids[kShortIds] = {};
    std::uint32_t count = 0;
  };
  struct alignas(64) ShortLine {
    ShortSlot slots[2];
  };

  struct LongSlot {
    std::uint64_t words[4] = {};  // the top byte of the last is the length
    std::int32_t ids[kLongIds] = {};
    std::uint32_t count = 0;
  };

  WordCache() : short_(std::size_t{1} << kShortBits), long_(std::size_t{1} << kLongBits) {}

  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
  };

  // `readable`: bytes that may be read from word.data() on, at least word.size(), which is 1 .. 15.
  static Key short_key(std::string_view word, std::size_t readable) {
    Key key;
    if (readable >= 16) {
      std::memcpy(&key, word.data(), 16);
      const std::size_t bits = word.size() * 8;
      if (bits < 64) {
        key.low &= (std::uint64_t{1} << bits) - 1;
        key.high = 0;
      } else {
        key.high &= (std::uint64_t{1} << (bits - 64)) - 1;
      }
    } else {
      std::memcpy(&key, word.data(), word.size());
    }
    key.high |= static_cast<std::uint64_t>(word.size()) << 56;
    return key;
  }

  ShortLine& short_line(Key key) {
    std::uint64_t hash = (key.low ^ (key.high * 0x9E3779B97F4A7C15U)) * 0xD6E8FEB86659FD93U;
    hash ^= hash >> 32;
    return short_[(hash * 0xD6E8FEB86659FD93U) >> (64 - kShortBits)];
  }
  // The slot of a word, or null.
  static const ShortSlot* find(ShortLine& line, Key key) {
    const auto holds = [key](const ShortSlot& slot) {
      return slot.low == key.low && slot.high == key.high;
    };
    if (!holds(line.slots[0])) {
      if (!holds(line.slots[1])) return nullptr;
      std::swap(line.slots[0], line.slots[1]);
    }
    return line.slots;
  }
  // Stores a word, unless it has too many ids.
  static void keep(ShortLine& line, Key key, std::span<const std::int32_t> ids) {
    if (ids.size() > kShortIds) return;
    ShortSlot& slot = line.slots[line.slots[0].high == 0 ? 0 : 1];
    slot.low = key.low;
    slot.high = key.high;
    slot.count = static_cast<std::uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.ids);
  }

  LongSlot& long_slot(std::string_view word, std::uint64_t (&key)[4]) {
    std::memset(key, 0, sizeof(key));
    std::memcpy(key, word.data(), word.size());
    key[3] |= static_cast<std::uint64_t>(word.size()) << 56;
    std::uint64_t hash = 0;
    for (const std::uint64_t part : key) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
    return long_[(hash * 0xD6E8FEB86659FD93U) >> (64 - kLongBits)];
  }

 private:
  static constexpr int kShortBits = 16;  // lines
  static constexpr int kLongBits = 13;
  std::vector<ShortLine> short_;
  std::vector<LongSlot> long_;
};

}  // namespace piton
