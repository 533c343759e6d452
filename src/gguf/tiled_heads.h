// The order of heads of values in GGUF files of Qwen 3.5.
//
// Canonical heads that share a key head are next to each other: head h has key head h / shared. In
// the files head p has key head p % keys, as ggml repeats tensors whole.
#pragma once

#include <cstdint>
#include <span>

namespace piton {

struct TiledHeads {
  std::int64_t keys = 0;    // key heads
  std::int64_t shared = 0;  // value heads of each
  std::int64_t size = 0;    // rows, or columns, of a head

  std::int64_t all() const { return keys * shared * size; }
  // Where row (or column) `i` of a canonical tensor is in the file.
  std::int64_t stored(std::int64_t i) const {
    const std::int64_t head = i / size;
    return (head % shared * keys + head / shared) * size + i % size;
  }
};

// Puts the columns of a row, which are all heads, into the order of the file, and back.
void tile_columns(const TiledHeads& heads, std::span<float> row);
void untile_columns(const TiledHeads& heads, std::span<float> row);

}  // namespace piton
