// The loops of codes.h. Included by one file of each instruction set. The file of words of the set
// is words_SET.h:
//   W                   a vector of 16-bit words
//   load_words, shifted (right by bits), nibble (the low four bits of words)
//   low_bytes and high_bytes (of words, with their signs), load_bytes (widened to words)
//   even_quarters and odd_quarters: of 128 bits each, of two vectors
//   low_pairs, high_pairs, low_halves, high_halves: of each 128 bits of two vectors, alternately 32
//                       or 64 bits
//   permuted            lane i is lane index[i]
//   add_products        32-bit sums, to which products of pairs of words are added
//   as_floats           sums as fp32
//   add_lanes           sum_lanes(), with its bits
//   WordTable           a table of 16 words: of(x) looks up the low four bits of each word
//   load_halves         fp16 as fp32
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

// How the integers of a weight are stored: as they are, or as places in a table. kWideBytes: a
// whole span is of one group, and lanes may have any columns.
enum class Stored { kBytes, kWideBytes, kNibbles, kTable };
constexpr bool is_byte(Stored stored) {
  return stored == Stored::kBytes || stored == Stored::kWideBytes;
}

constexpr int kWords = 2 * kLanes;  // 16-bit integers of a vector
// Bytes of a row from a span to the one that is prefetched with it. Farther ones gain nothing for
// several rows of x, and one row is slower with them.
constexpr std::int64_t kAhead = 2048;
// Rows of the weight in a register tile. Few rows of x are bound by memory, which is read fastest
// in the order of its addresses.
constexpr int tile_weights(Stored stored, int rows) {
  return PITON_VECTOR_BYTES == 64 && rows >= (is_byte(stored) ? 8 : 4) ? 2 : 1;
}

constexpr std::int64_t bytes_of(Stored stored, std::int64_t columns) {
  return is_byte(stored) ? columns : columns / 2;
}

// A span of codes: `columns` neighboring ones in each lane.
template <Stored stored, int columns>
struct Span {
  static constexpr int kColumns = kLanes * columns;
  static constexpr int kBytes = static_cast<int>(bytes_of(stored, kColumns));
  static constexpr int kLaneBytes = kBytes / kLanes;                  // 16 or 32
  static constexpr int kQuads = kLaneBytes / 4;                       // of four bytes
  static constexpr int kEach = is_byte(stored) ? 2 : 4;               // vectors of words in a quad
  static constexpr int kGroups = PITON_VECTOR_BYTES / kLaneBytes > 0  // whole ones in a vector
                                     ? PITON_VECTOR_BYTES / kLaneBytes
                                     : 1;

  // The lane of group `group` of the span.
  static constexpr int lane(int group) {
    const int four = 4 * kGroups;  // groups in four vectors
    return group / four * four + group % kGroups * 4 + group % four / kGroups;
  }
  // Where column `column` of the span is among its integers.
  static constexpr int place(int column) {
    if (stored == Stored::kWideBytes) return column;
    const int c = column % columns;
    const int code = c % kEach;  // of a word
    const int word = c / kEach;
    return (word / 2 * kEach + code) * kWords + 2 * lane(column / columns) + word % 2;
  }
  static U groups() {
    U index{};
    for (int group = 0; group < kLanes; ++group)
      index[lane(group)] = static_cast<std::uint32_t>(group);
    return index;
  }
};

// Of four vectors, each with quads of one or more groups: vector i has quad i of each 128 bits.
PITON_INLINE void transpose_quads(W (&z)[4]) {
  const W a = low_pairs(z[0], z[1]);
  const W b = high_pairs(z[0], z[1]);
  const W c = low_pairs(z[2], z[3]);
  const W d = high_pairs(z[2], z[3]);
  z[0] = low_halves(a, c);
  z[1] = high_halves(a, c);
  z[2] = low_halves(b, d);
  z[3] = high_halves(b, d);
}

// Vector i: quad i of each lane.
template <Stored stored, int quads>
PITON_INLINE void load_quads(W (&to)[quads], const std::uint8_t* codes) {
  if constexpr (stored == Stored::kWideBytes) {
    return;
  } else if constexpr (quads == 4) {
    for (int k = 0; k < 4; ++k) to[k] = load_words(codes + k * PITON_VECTOR_BYTES);
    transpose_quads(to);
  } else {
    // A group has two times 128 bits; of vectors of 128 bits, the first ones and the second ones.
    constexpr bool kHalf = PITON_VECTOR_BYTES == 16;
    W first[4];
    W second[4];
    for (int k = 0; k < 4; ++k) {
      first[k] = load_words(codes + (kHalf ? 2 * k : k) * PITON_VECTOR_BYTES);
      second[k] = load_words(codes + (kHalf ? 2 * k + 1 : k + 4) * PITON_VECTOR_BYTES);
    }
    transpose_quads(first);
    transpose_quads(second);
    for (int k = 0; k < 4; ++k) {
      to[k] = even_quarters(first[k], second[k]);
      to[k + 4] = odd_quarters(first[k], second[k]);
    }
  }
}

// Code `code` of each word.
template <Stored stored>
PITON_INLINE W words_of(W quads, int code, const WordTable& table) {
  if constexpr (is_byte(stored)) return code == 0 ? low_bytes(quads) : high_bytes(quads);
  const W moved = code == 0 ? quads : shifted(quads, 4 * code);
  if constexpr (stored == Stored::kTable) return table.of(moved);
  return code == 3 ? moved : nibble(moved);
}

// What a register tile multiplies.
template <int weights, int rows>
struct Tile {
  const std::uint8_t* codes[weights];
  const float* scales[weights];
  int shift;          // TileScales::shift()
  std::int64_t lane;  // the first of a span
  const std::int16_t* x;
  std::int64_t x_stride;
  const float* x_scales;
  std::int64_t x_scale_stride;
  alignas(PITON_VECTOR_BYTES) float sums[weights][rows][kLanes];
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

// Keeps a value in a register: otherwise each instruction that uses it loads it, and products are
// added in another order, in which they do not fit registers.
PITON_INLINE void keep(W& x) { __asm__("" : "+" PITON_VECTOR_REGISTER(x)); }

// Adds `spans` spans to the sums of a tile, lane by lane, and moves the tile behind them. Loops
// over the tile are unrolled, for integers in registers. ahead: none where no codes follow.
template <int weights, int rows, Stored stored, int columns>
PITON_INLINE void add_spans(Tile<weights, rows>& t, const WordTable& table, std::int64_t spans,
                            const Ahead* ahead) {
  using Codes = Span<stored, columns>;
  const U groups = Codes::groups() >> static_cast<std::uint32_t>(t.shift);
  for (std::int64_t b = 0; b < spans; ++b) {
    const std::int64_t later = ahead != nullptr ? ahead->of(b * Codes::kBytes) : 0;
    W quads[weights][Codes::kQuads];
#pragma GCC unroll 2
    for (int i = 0; i < weights; ++i) {
      load_quads<stored>(quads[i], t.codes[i]);
    }
    const std::int16_t* x[rows];
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      x[r] = t.x + r * t.x_stride;
      __asm__("" : "+r"(x[r]));  // otherwise each sum of a row and a place has a register
    }
    W parts[weights][rows] = {};
#pragma GCC unroll 8
    for (int quad = 0; quad < Codes::kQuads; ++quad) {
      constexpr int kBytes = Codes::kBytes / Codes::kQuads;
      if (ahead != nullptr && quad * kBytes % 64 == 0) {
#pragma GCC unroll 2
        for (int i = 0; i < weights; ++i) __builtin_prefetch(t.codes[i] + later + quad * kBytes);
      }
#pragma GCC unroll 4
      for (int code = 0; code < Codes::kEach; ++code) {
        W w[weights];
#pragma GCC unroll 2
        for (int i = 0; i < weights; ++i) {
          w[i] = stored == Stored::kWideBytes
                     ? load_bytes(t.codes[i] + (quad * Codes::kEach + code) * kWords)
                     : words_of<stored>(quads[i][quad], code, table);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; ++r) {
          W values = load_words(x[r] + (quad * Codes::kEach + code) * kWords);
          if constexpr (weights > 1) keep(values);
#pragma GCC unroll 2
          for (int i = 0; i < weights; ++i) {
            parts[i][r] = add_products(parts[i][r], w[i], values);
            keep(parts[i][r]);
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int i = 0; i < weights; ++i) {
      const F scales = permuted(load(t.scales[i] + (t.lane >> t.shift)), groups);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const F of_x = load(t.x_scales + r * t.x_scale_stride);
        float* sums = t.sums[i][r];
        store(sums, load(sums) + as_floats(parts[i][r]) * (scales * of_x));
      }
      t.codes[i] += Codes::kBytes;
    }
    t.lane += kLanes;
    t.x += Codes::kColumns;
    t.x_scales += kLanes;
  }
}

// `rows` rows of x from `row` on by tile_weights(rows) rows of the weight from o on, of which
// `count` exist, and `behind` after them.
template <int rows, Stored stored, int columns>
void multiply_tile(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t row,
                   const CodedRows& w, std::int64_t o, std::int64_t count, std::int64_t behind,
                   const TileScales& scales, const WordTable& table) {
  constexpr int kWeights = tile_weights(stored, rows);
  using Codes = Span<stored, columns>;
  const std::int64_t whole = w.columns / Codes::kColumns;
  const std::int64_t rest = w.columns % Codes::kColumns;
  Tile<kWeights, rows> t;
  t.shift = scales.shift();
  t.lane = 0;
  t.x = x.values + row * code_row_size(w.columns);
  t.x_stride = code_row_size(w.columns);
  t.x_scales = x.scales + row * code_scales(w);
  t.x_scale_stride = code_scales(w);
  for (int i = 0; i < kWeights; ++i) {
    const std::int64_t at = i < count ? o + i : o;  // a row that does not exist: the first again
    const RowScales own = scales.of(at, i);
    t.codes[i] = w.codes + at * w.stride;
    t.scales[i] = own.scales;
    for (int r = 0; r < rows; ++r) {
      const float* of_x = x.group_sums + (row + r) * code_group_sums(w);
      F sum = splat(0);
      for (std::int64_t g = 0; own.zeros != nullptr && g < w.groups; g += kLanes)
        sum -= load(own.zeros + g) * load(of_x + g);
      store(t.sums[i][r], sum);
    }
  }
  const Ahead ahead(w.stride, kWeights);
  // What is behind a row is multiplied by 0.
  const bool reads_on = rest > 0 && behind * w.stride >= Codes::kBytes - bytes_of(stored, rest);
  add_spans<kWeights, rows, stored, columns>(t, table, reads_on ? whole + 1 : whole, &ahead);
  if (rest > 0 && !reads_on) {
    std::uint8_t codes[kWeights][Codes::kBytes] = {};
    for (int i = 0; i < kWeights; ++i) {
      __builtin_memcpy(codes[i], t.codes[i], static_cast<std::size_t>(bytes_of(stored, rest)));
      t.codes[i] = codes[i];
    }
    add_spans<kWeights, rows, stored, columns>(t, table, 1, nullptr);
  }
  for (int i = 0; i < count; ++i) {
    for (int r = 0; r < rows; ++r) sums[(row + r) * stride + i] = add_lanes(load(t.sums[i][r]));
  }
}

// `rows` rows of x by all rows of the weight in [begin, end), with `behind` after them.
template <int rows, Stored stored, int columns>
PITON_INLINE void multiply_pass(float* sums, std::int64_t stride, const IntegerRows& x,
                                std::int64_t row, const CodedRows& w, std::int64_t begin,
                                std::int64_t end, std::int64_t behind, const TileScales& scales,
                                const WordTable& table) {
  constexpr std::int64_t kWeights = tile_weights(stored, rows);
  for (std::int64_t o = begin; o < end; o += kWeights) {
    const std::int64_t count = end - o < kWeights ? end - o : kWeights;
    multiply_tile<rows, stored, columns>(sums + (o - begin), stride, x, row, w, o, count,
                                         end - o - count + behind, scales, table);
  }
}

// Rows of the weight that stay in the second-level cache for all passes over them.
constexpr std::int64_t kBandWeights = 16;

template <Stored stored, int columns>
void multiply_stored(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
                     const CodedRows& w, std::int64_t begin, std::int64_t end,
                     const TileScales& scales) {
  const WordTable table(w.integers);
  for (std::int64_t o = begin; o < end; o += kBandWeights) {
    const std::int64_t last = end - o < kBandWeights ? end : o + kBandWeights;
    float* to = sums + (o - begin);
    std::int64_t row = 0;
    for (; row + 8 <= rows; row += 8)
      multiply_pass<8, stored, columns>(to, stride, x, row, w, o, last, end - last, scales, table);
    for (; row + 4 <= rows; row += 4)
      multiply_pass<4, stored, columns>(to, stride, x, row, w, o, last, end - last, scales, table);
    for (; row + 2 <= rows; row += 2)
      multiply_pass<2, stored, columns>(to, stride, x, row, w, o, last, end - last, scales, table);
    if (row < rows)
      multiply_pass<1, stored, columns>(to, stride, x, row, w, o, last, end - last, scales, table);
  }
}

// use(Span<...>{}) with the span of a weight.
template <typename Use>
PITON_INLINE void with_span(const CodedRows& w, Use use) {
  using Wide = Span<Stored::kWideBytes, 32>;
  if (!w.nibbles && (w.groups == 1 || w.group % Wide::kColumns == 0)) return use(Wide{});
  if (!w.nibbles && code_lane(w) == 16) return use(Span<Stored::kBytes, 16>{});
  if (!w.nibbles) return use(Span<Stored::kBytes, 32>{});
  if (w.is_table) return use(Span<Stored::kTable, 32>{});
  use(Span<Stored::kNibbles, 32>{});
}

void multiply(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
              const CodedRows& w, std::int64_t begin, std::int64_t end, float* memory) {
  const TileScales scales(w, x.group_sums != nullptr, memory);
  with_span(w, [&]<Stored stored, int columns>(Span<stored, columns>) {
    multiply_stored<stored, columns>(sums, stride, x, rows, w, begin, end, scales);
  });
}

// The order of integers and scales in IntegerRows.
struct Places {
  explicit Places(const CodedRows& w) {
    with_span(w, [&]<Stored stored, int size>(Span<stored, size>) {
      using Codes = Span<stored, size>;
      columns = Codes::kColumns;
      wide = stored == Stored::kWideBytes;
      for (int c = 0; c < columns; ++c) of[c] = static_cast<std::uint16_t>(Codes::place(c));
      for (int group = 0; group < kLanes; ++group) lanes[group] = Codes::lane(group);
    });
  }
  int columns = 0;    // of a span
  bool wide = false;  // a lane has columns of all of it
  std::uint16_t of[kWidestCodeSpan];
  int lanes[kLanes];
};

constexpr float kLargestInteger = 32767;

// The scale of n columns, NaN if a value is not finite.
PITON_INLINE float scale_of(const float* x, std::int64_t n) {
  F top = splat(0);
  F finite = splat(0);  // NaN where a value is not
  for_vectors(
      n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
        const F values = load(x + i, count);
        top = max(abs(values), top);
        finite += values * splat(0);
      });
  constexpr float kSmallest = 0x1p-100F;
  const float largest = max_lanes(top);
  return (largest > kSmallest ? largest / kLargestInteger : 0) + sum_lanes(finite);
}

// One block: n columns, and then 0.
PITON_INLINE void round_block(std::int32_t (&rounded)[kCodeBlock], const float* x, std::int64_t n,
                              float scale) {
  alignas(64) float block[kCodeBlock] = {};
  if (n > 0) __builtin_memcpy(block, x, static_cast<std::size_t>(n) * sizeof(float));
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int i = 0; i < kCodeBlock; i += kLanes) {
    // Adding 1.5 * 2^23 rounds to nearest even.
    const F moved = load(block + i) * splat(inverse) + splat(0x1.8p23F);
    const I bits = (I)moved - splat_i(0x4B400000);
    __builtin_memcpy(rounded + i, &bits, sizeof bits);
  }
}

void round_row(const IntegerRows& to, std::int64_t row, const float* x, const CodedRows& w) {
  const Places places(w);
  std::int16_t* values = to.values + row * code_row_size(w.columns);
  float* scales = to.scales + row * code_scales(w);
  const std::int64_t lane = code_lane(w);
  float* sums = to.group_sums == nullptr ? nullptr : to.group_sums + row * code_group_sums(w);
  for (std::int64_t g = 0; sums != nullptr && g < code_group_sums(w); ++g) sums[g] = 0;
  // Blocks, and then spans, are filled up with 0.
  const std::int64_t whole = places.columns > kCodeBlock ? places.columns : kCodeBlock;
  const std::int64_t end = (w.columns + whole - 1) / whole * whole;
  const std::int64_t shared = places.wide ? whole : kCodeBlock;  // columns with one scale
  float scale = 0;
  for (std::int64_t at = 0; at < end; at += kCodeBlock) {
    const std::int64_t rest = at < w.columns ? w.columns - at : 0;
    if (at % shared == 0) scale = scale_of(x + at, rest < shared ? rest : shared);
    std::int32_t rounded[kCodeBlock];
    round_block(rounded, x + at, rest < kCodeBlock ? rest : kCodeBlock, scale);
    const std::int64_t size = kCodeBlock < places.columns ? kCodeBlock : places.columns;
    for (std::int64_t part = 0; part < kCodeBlock; part += size) {
      const std::int64_t span = (at + part) / places.columns;
      const std::int64_t first = (at + part) % places.columns;
      std::int16_t* to_span = values + span * places.columns;
      for (std::int64_t c = 0; c < size; ++c)
        to_span[places.of[first + c]] = static_cast<std::int16_t>(rounded[part + c]);
      for (std::int64_t c = 0; c < size; c += lane)
        scales[span * kLanes + places.lanes[(first + c) / lane]] = scale;
    }
    for (std::int64_t c = 0; sums != nullptr && c < kCodeBlock && c < rest; c += lane) {
      std::int32_t sum = 0;
      for (std::int64_t i = c; i < c + lane; ++i) sum += rounded[i];
      // `step` is in the scales that these sums are multiplied with.
      sums[(at + c) / w.group] += static_cast<float>(sum) * (scale / w.step);
    }
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
  float scales[kScales + kLanes];
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
