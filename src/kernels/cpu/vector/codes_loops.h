// The loops of codes.h. Included by one file of each instruction set. The file of words of the set
// is words_SET.h:
//   W                   a vector of 16-bit words
//   load_words, shifted (right by bits), nibble (the low four bits of words)
//   low_bytes and high_bytes (of words, with their signs), load_bytes (widened to words)
//   even_quarters and odd_quarters: of 128 bits each, of two vectors
//   add_products        32-bit sums, to which products of pairs of words are added
//   as_floats           sums as fp32
//   add_lanes           sum_lanes(), with its bits
//   WordTable           a table of 16 words: of(x) looks up the low four bits of each word
//   load_halves         fp16 as fp32
//   repeat_four         four fp32 in each 128 bits
//   expand_pairs        columns from a table of fp32; returns how many it did
#pragma once

#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/simd.h"

// Spaces would be a part of the name.
// clang-format off
#define PITON_TEXT(words) #words
#define PITON_WORDS_OF(isa) PITON_TEXT(kernels/cpu/vector/words_##isa.h)
#define PITON_WORDS(isa) PITON_WORDS_OF(isa)
#include PITON_WORDS(PITON_ISA)
// clang-format on
#include "kernels/cpu/vector/codes_scales.h"  // after the words

namespace piton::cpu::PITON_ISA {
namespace {

// How the integers of a weight are stored: as they are, or as places in a table.
enum class Stored { kBytes, kNibbles, kTable };

constexpr int kWords = 2 * kLanes;  // 16-bit integers of a vector
// Columns are multiplied in parts of four vectors. A lane of their sums has eight columns.
constexpr int kVectors = 4;
constexpr int kPart = kVectors * kWords;
constexpr int kParts = static_cast<int>(kCodeBlock) / kPart;
// Bytes of a row from a block to the one that is prefetched with it. Farther ones gain nothing for
// several rows of x, and one row is slower with them.
constexpr std::int64_t kAhead = 2048;
// Rows of the weight in a register tile. Few rows of x are bound by memory, which is read fastest
// in the order of its addresses.
constexpr int kPairFrom = 8;
constexpr int tile_weights(int rows) {
  return PITON_VECTOR_BYTES == 64 && rows >= kPairFrom ? 2 : 1;
}

constexpr std::int64_t bytes_of(Stored stored, std::int64_t columns) {
  return stored == Stored::kBytes ? columns : columns / 2;
}

// A lane has eight neighboring columns if a part has several groups of `size` columns; otherwise
// the lanes may have any columns.
constexpr bool has_ordered_lanes(int size) { return size < kPart; }

// Where column `column` of a block is among its integers.
constexpr int place(Stored stored, bool ordered, int column) {
  const int part = column / kPart * kPart;
  const int c = column % kPart;
  if (stored != Stored::kBytes) return part + c % kVectors * kWords + c / kVectors;
  if (!ordered) return column;
  // Even and odd quarters of 16 bytes are gathered, and of each, even and odd bytes.
  const int byte = c / 32 * 16 + c % 16;
  return part + (2 * (c / 16 % 2) + byte % 2) * kWords + byte / 2;
}

// The integers of a part of a row.
template <int size, Stored stored>
PITON_INLINE void unpack(W (&w)[kVectors], const std::uint8_t* codes, const WordTable& table) {
  if constexpr (stored == Stored::kBytes && has_ordered_lanes(size)) {
    const W first = load_words(codes);
    const W second = load_words(codes + PITON_VECTOR_BYTES);
    const W even = even_quarters(first, second);
    const W odd = odd_quarters(first, second);
    w[0] = low_bytes(even);
    w[1] = high_bytes(even);
    w[2] = low_bytes(odd);
    w[3] = high_bytes(odd);
  } else if constexpr (stored == Stored::kBytes) {
    for (int v = 0; v < kVectors; ++v) w[v] = load_bytes(codes + v * kWords);
  } else {
    const W raw = load_words(codes);
    const W moved[kVectors] = {raw, shifted(raw, 4), shifted(raw, 8), shifted(raw, 12)};
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (stored == Stored::kTable) {
        w[v] = table.of(moved[v]);
      } else {
        w[v] = v == 3 ? moved[v] : nibble(moved[v]);
      }
    }
  }
}

// The scales of the lanes of a part, from those of its block.
template <int size>
PITON_INLINE F lane_scales(const float* scales, int part) {
  const int first = part * kPart;
  if constexpr (!has_ordered_lanes(size)) {
    return splat(scales[first / size]);
  } else {
    U index;
    for (int lane = 0; lane < kLanes; ++lane) {
      index[lane] = static_cast<std::uint32_t>((first + lane * 8) / size);
    }
    return pick_of_four(repeat_four(scales), index);
  }
}

// What a register tile multiplies.
template <int weights>
struct Tile {
  const std::uint8_t* codes[weights];
  const std::int16_t* x;
  std::int64_t x_stride;
  const float* scales[weights];  // [rows, scale_stride], of products
  std::int64_t scale_stride;
};

// How far behind a byte of a row is what will be read kAhead bytes later: a tile reads its rows
// side by side.
struct Ahead {
  Ahead(std::int64_t stride, int weights)
      : stride(stride),
        rest(kAhead % stride),
        whole(kAhead / stride * weights * stride),
        jump((weights - 1) * stride) {}
  std::int64_t of(std::int64_t byte) const {
    return rest + whole + (byte + rest >= stride ? jump : 0);
  }
  std::int64_t stride;
  std::int64_t rest;
  std::int64_t whole;
  std::int64_t jump;
};

// Keeps a value that several instructions use in a register: otherwise each of them loads it.
PITON_INLINE void keep(W& x) { __asm__("" : "+v"(x)); }

// Adds `blocks` blocks to the sums of a tile, lane by lane, and moves the tile behind them. Loops
// over the tile are unrolled, for sums in registers. ahead: none where no codes follow.
template <int weights, int rows, int size, Stored stored>
PITON_INLINE void add_blocks(F (&lanes)[weights][rows], Tile<weights>& t, const WordTable& table,
                             std::int64_t blocks, const Ahead* ahead) {
  constexpr std::int64_t kBytes = bytes_of(stored, kCodeBlock);
  F totals[weights][rows];
#pragma GCC unroll 8
  for (int i = 0; i < weights; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) totals[i][r] = lanes[i][r];
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t later = ahead != nullptr ? ahead->of(b * kBytes) : 0;
#pragma GCC unroll 8
    for (int i = 0; ahead != nullptr && i < weights; ++i) {
      __builtin_prefetch(t.codes[i] + later);
      if (kBytes > 64) __builtin_prefetch(t.codes[i] + later + 64);
    }
#pragma GCC unroll 8
    for (int part = 0; part < kParts; ++part) {
      W w[weights][kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < weights; ++i)
        unpack<size, stored>(w[i], t.codes[i] + bytes_of(stored, part * kPart), table);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const std::int16_t* x = t.x + r * t.x_stride + part * kPart;
        W sums[weights] = {};
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          W values = load_words(x + v * kWords);
          if constexpr (weights > 1) keep(values);
#pragma GCC unroll 8
          for (int i = 0; i < weights; ++i) sums[i] = add_products(sums[i], w[i][v], values);
        }
#pragma GCC unroll 8
        for (int i = 0; i < weights; ++i) {
          totals[i][r] +=
              as_floats(sums[i]) * lane_scales<size>(t.scales[i] + r * t.scale_stride, part);
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < weights; ++i) {
      t.codes[i] += kBytes;
      t.scales[i] += kCodeBlock / size;
    }
    t.x += kCodeBlock;
  }
#pragma GCC unroll 8
  for (int i = 0; i < weights; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) lanes[i][r] = totals[i][r];
  }
}

// `rows` rows of x from `row` on by tile_weights(rows) rows of the weight from o on, of which
// `count` exist.
template <int rows, int size, Stored stored>
void multiply_tile(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t row,
                   const CodedRows& w, std::int64_t o, std::int64_t count,
                   const PassScales& scales) {
  constexpr int kWeights = tile_weights(rows);
  const WordTable table(w.integers);
  const std::int64_t whole = w.columns / kCodeBlock;
  const std::int64_t rest = w.columns % kCodeBlock;
  Tile<kWeights> t{.x = x.values + row * code_row_size(w.columns),
                   .x_stride = code_row_size(w.columns),
                   .scale_stride = scales.stride()};
  F lanes[kWeights][rows] = {};
  float factors[kWeights];
  for (int i = 0; i < kWeights; ++i) {
    const std::int64_t at = i < count ? o + i : o;  // a row that does not exist: the first again
    const RowScales own = scales.of(at, i, row, rows);
    t.codes[i] = w.codes + at * w.stride;
    t.scales[i] = own.scales;
    factors[i] = own.factor;
    for (int r = 0; own.zeros != nullptr && r < rows; ++r) {
      const float* of_x = x.group_sums + (row + r) * code_group_sums(w);
      F sum = splat(0);
      for (std::int64_t g = 0; g < w.groups; g += kLanes)
        sum -= load(own.zeros + g) * load(of_x + g);
      lanes[i][r] = sum;
    }
  }
  const Ahead ahead(w.stride, kWeights);
  add_blocks<kWeights, rows, size, stored>(lanes, t, table, whole, &ahead);
  if (rest > 0) {
    std::uint8_t codes[kWeights][bytes_of(stored, kCodeBlock)] = {};
    for (int i = 0; i < kWeights; ++i) {
      __builtin_memcpy(codes[i], t.codes[i], static_cast<std::size_t>(bytes_of(stored, rest)));
      t.codes[i] = codes[i];
    }
    add_blocks<kWeights, rows, size, stored>(lanes, t, table, 1, nullptr);
  }
  for (int i = 0; i < count; ++i) {
    for (int r = 0; r < rows; ++r)
      sums[(row + r) * stride + i] = add_lanes(lanes[i][r]) * factors[i];
  }
}

// `rows` rows of x by all rows of the weight in [begin, end).
template <int rows, int size, Stored stored>
PITON_INLINE void multiply_pass(float* sums, std::int64_t stride, const IntegerRows& x,
                                std::int64_t row, const CodedRows& w, std::int64_t begin,
                                std::int64_t end, const PassScales& scales) {
  constexpr std::int64_t kWeights = tile_weights(rows);
  for (std::int64_t o = begin; o < end; o += kWeights) {
    multiply_tile<rows, size, stored>(sums + (o - begin), stride, x, row, w, o,
                                      end - o < kWeights ? end - o : kWeights, scales);
  }
}

// Rows of the weight that stay in the second-level cache for all passes over them.
constexpr std::int64_t kBandWeights = 16;

template <int size, Stored stored>
PITON_INLINE void multiply_of(float* sums, std::int64_t stride, const IntegerRows& x,
                              std::int64_t rows, const CodedRows& w, std::int64_t begin,
                              std::int64_t end, const PassScales& scales) {
  for (std::int64_t o = begin; o < end; o += kBandWeights) {
    const std::int64_t last = end - o < kBandWeights ? end : o + kBandWeights;
    float* to = sums + (o - begin);
    std::int64_t row = 0;
    for (; row + 8 <= rows; row += 8)
      multiply_pass<8, size, stored>(to, stride, x, row, w, o, last, scales);
    for (; row + 4 <= rows; row += 4)
      multiply_pass<4, size, stored>(to, stride, x, row, w, o, last, scales);
    for (; row + 2 <= rows; row += 2)
      multiply_pass<2, size, stored>(to, stride, x, row, w, o, last, scales);
    if (row < rows) multiply_pass<1, size, stored>(to, stride, x, row, w, o, last, scales);
  }
}

PITON_INLINE Stored stored_as(const CodedRows& w) {
  if (!w.nibbles) return Stored::kBytes;
  return w.is_table ? Stored::kTable : Stored::kNibbles;
}

template <int size>
PITON_INLINE void multiply_stored(float* sums, std::int64_t stride, const IntegerRows& x,
                                  std::int64_t rows, const CodedRows& w, std::int64_t begin,
                                  std::int64_t end, const PassScales& scales) {
  switch (stored_as(w)) {
    case Stored::kBytes:
      return multiply_of<size, Stored::kBytes>(sums, stride, x, rows, w, begin, end, scales);
    case Stored::kNibbles:
      return multiply_of<size, Stored::kNibbles>(sums, stride, x, rows, w, begin, end, scales);
    case Stored::kTable:
      return multiply_of<size, Stored::kTable>(sums, stride, x, rows, w, begin, end, scales);
  }
}

void multiply(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
              const CodedRows& w, std::int64_t begin, std::int64_t end, float* memory) {
  const PassScales scales(w, x, memory);
  const std::int64_t step = code_step(w);
  if (step == 32) return multiply_stored<32>(sums, stride, x, rows, w, begin, end, scales);
  if (step == 64) return multiply_stored<64>(sums, stride, x, rows, w, begin, end, scales);
  multiply_stored<kCodeBlock>(sums, stride, x, rows, w, begin, end, scales);
}

// The order of integers in IntegerRows.
struct Places {
  explicit Places(const CodedRows& w) {
    const Stored stored = stored_as(w);
    const bool ordered = has_ordered_lanes(static_cast<int>(code_step(w)));
    for (int c = 0; c < kCodeBlock; ++c)
      of[c] = static_cast<std::uint8_t>(place(stored, ordered, c));
  }
  std::uint8_t of[kCodeBlock];
};

// One block, as `rounded` too; returns its scale, NaN if a value is not finite.
PITON_INLINE float round_block(std::int16_t* to, const float* x, std::int64_t n,
                               const Places& places, std::int32_t (&rounded)[kCodeBlock]) {
  alignas(64) float block[kCodeBlock] = {};
  __builtin_memcpy(block, x, static_cast<std::size_t>(n) * sizeof(float));
  F top = splat(0);
  F finite = splat(0);  // NaN where a value is not
  for (int i = 0; i < kCodeBlock; i += kLanes) {
    top = max(abs(load(block + i)), top);
    finite += load(block + i) * splat(0);
  }
  constexpr float kLargest = 32767;
  constexpr float kSmallest = 0x1p-100F;
  const float largest = max_lanes(top);
  const float scale = largest > kSmallest ? largest / kLargest : 0;
  const float inverse = largest > kSmallest ? kLargest / largest : 0;
  for (int i = 0; i < kCodeBlock; i += kLanes) {
    // Adding 1.5 * 2^23 rounds to nearest even.
    const F moved = load(block + i) * splat(inverse) + splat(0x1.8p23F);
    const I bits = (I)moved - splat_i(0x4B400000);
    __builtin_memcpy(rounded + i, &bits, sizeof bits);
  }
  for (int c = 0; c < kCodeBlock; ++c) to[places.of[c]] = static_cast<std::int16_t>(rounded[c]);
  return scale + sum_lanes(finite);
}

void round_row(const IntegerRows& to, std::int64_t row, const float* x, const CodedRows& w) {
  const Places places(w);
  const std::int64_t blocks = code_blocks(w.columns);
  const std::int64_t entries = code_scales(w);
  const std::int64_t size = code_step(w);
  float* sums = to.group_sums == nullptr ? nullptr : to.group_sums + row * code_group_sums(w);
  for (std::int64_t g = 0; sums != nullptr && g < code_group_sums(w); ++g) sums[g] = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t rest = w.columns - b * kCodeBlock;
    std::int32_t rounded[kCodeBlock];
    const float scale =
        round_block(to.values + row * code_row_size(w.columns) + b * kCodeBlock, x + b * kCodeBlock,
                    rest < kCodeBlock ? rest : kCodeBlock, places, rounded);
    float* scales = to.scales + row * entries + b * (kCodeBlock / size);
    for (std::int64_t first = 0; first < kCodeBlock; first += size) {
      scales[first / size] = scale;
      if (sums == nullptr || b * kCodeBlock + first >= w.columns) continue;
      std::int32_t sum = 0;
      for (std::int64_t c = first; c < first + size; ++c) sum += rounded[c];
      // `step` is in the scales that these sums are multiplied with.
      sums[(b * kCodeBlock + first) / w.group] += static_cast<float>(sum) * (scale / w.step);
    }
  }
}

// Scales of `n` groups of a row.
PITON_INLINE void load_scales(float* to, const CodedRows& w, std::int64_t row, std::int64_t group,
                              std::int64_t n) {
  const std::int64_t first = row * w.groups + group;
  const auto copy = [&](const auto* from) __attribute__((always_inline)) {
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(to + i, load(from + first + i, count), count);
        });
  };
  if (w.scale_type == Type::kF32) {
    copy(static_cast<const float*>(w.scales));
  } else {
    copy(static_cast<const Half*>(w.scales));
  }
}

PITON_INLINE void expand_bytes(float* to, const std::uint8_t* codes, std::int64_t n, float scale,
                               float zero) {
  typedef signed char B __attribute__((vector_size(kLanes)));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F code = __builtin_convertvector(widen_bytes(load_bits<B>(codes + i)), F);
    store(to + i, (code - splat(zero)) * splat(scale));
  }
  for (; i < n; ++i)
    to[i] = (static_cast<float>(static_cast<signed char>(codes[i])) - zero) * scale;
}

// table: the values of all codes. first: a column of the row, which may be odd.
PITON_INLINE void expand_nibbles(float* to, const std::uint8_t* codes, std::int64_t first,
                                 std::int64_t n, const float* table) {
  std::int64_t i = 0;
  if (first % 2 == 0) i = expand_pairs(to, codes + first / 2, n, table);
  for (; i < n; ++i) {
    const int both = codes[(first + i) / 2];
    to[i] = table[(first + i) % 2 == 0 ? both & 15 : both >> 4];
  }
}

void expand(float* to, const CodedRows& w, std::int64_t row, std::int64_t first, std::int64_t n) {
  constexpr std::int64_t kScales = 64;
  float scales[kScales];
  const std::uint8_t* codes = w.codes + row * w.stride;
  const std::int64_t last_group = (first + n + w.group - 1) / w.group;
  std::int64_t scales_end = first / w.group;
  std::int64_t scales_begin = scales_end;
  for (std::int64_t at = first; at < first + n;) {
    const std::int64_t group = at / w.group;
    if (group == scales_end) {
      const std::int64_t count = last_group - group < kScales ? last_group - group : kScales;
      load_scales(scales, w, row, group, count);
      scales_begin = group;
      scales_end = group + count;
    }
    const std::int64_t end = (group + 1) * w.group < first + n ? (group + 1) * w.group : first + n;
    const float scale = scales[group - scales_begin];
    const float zero = w.zeros != nullptr ? w.zeros[row * w.groups + group] : 0;
    if (!w.nibbles) {
      expand_bytes(to + (at - first), codes + at, end - at, scale, zero);
    } else {
      float table[16];
      for (int code = 0; code < 16; code += kLanes)
        store(table + code, (load(w.values + code) - splat(zero)) * splat(scale));
      expand_nibbles(to + (at - first), codes, at, end - at, table);
    }
    at = end;
  }
}

}  // namespace

const CodesTable& codes_table() {
  static constexpr CodesTable kTable{
      .round_row = round_row, .multiply = multiply, .expand = expand};
  return kTable;
}

}  // namespace piton::cpu::PITON_ISA
