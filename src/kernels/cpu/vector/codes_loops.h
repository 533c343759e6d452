// The loops of codes.h. Included by one file of each instruction set. The file of words of the set
// is words_SET.h:
//   W                   a vector of 16-bit words
//   load_words, shifted (right by bits), low_bytes and high_bytes (of words, with their signs)
//   add_products        32-bit sums, to which products of pairs of words are added
//   as_floats           sums as fp32
//   add_lanes           sum_lanes(), with its bits
//   WordTable           a table of 16 words: of(x) looks up the low four bits of each word
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

namespace piton::cpu::PITON_ISA {
namespace {

constexpr int kWords = 2 * kLanes;     // 16-bit integers of a vector
constexpr std::int64_t kAhead = 2048;  // bytes of codes

// How the columns of a block are placed in vectors: in each `part`, kVectors vectors of words. A
// lane of sums has kColumns neighboring columns.
template <bool nibbles>
struct Order {
  static constexpr int kVectors = nibbles ? 4 : 2;
  static constexpr int kColumns = 2 * kVectors;
  static constexpr int kParts = static_cast<int>(kCodeBlock) / (kColumns * kLanes);
  static constexpr int kBytes = static_cast<int>(kCodeBlock) / (nibbles ? 2 : 1);
  // Where column `column` of a block is among its integers: by vector, then by word.
  static constexpr int place(int column) {
    return column % kVectors * (static_cast<int>(kCodeBlock) / kVectors) + column / kVectors;
  }
};

// The scales of the lanes of a part: `size` columns of a block have one scale.
template <int columns, int size>
PITON_INLINE F lane_scales(const float* scales, int part) {
  const int first = part * kLanes * columns;
  if constexpr (kLanes * columns <= size) {
    return splat(scales[first / size]);
  } else {
    U index;
    for (int lane = 0; lane < kLanes; ++lane) {
      index[lane] = static_cast<std::uint32_t>((first + lane * columns) / size);
    }
    return __builtin_shuffle(load(scales), index);
  }
}

// Adds a block of one row of the weight by `rows` rows of x.
template <int rows, int size, bool nibbles>
PITON_INLINE void add_block(F (&sums)[rows], const std::uint8_t* codes, const WordTable& table,
                            const float* scales, const std::int16_t* x, std::int64_t x_stride,
                            const float* x_scales, std::int64_t blocks) {
  using O = Order<nibbles>;
  constexpr int kWordsOfVector = static_cast<int>(kCodeBlock) / O::kVectors;
  for (int part = 0; part < O::kParts; ++part) {
    const W raw = load_words(codes + part * PITON_VECTOR_BYTES);
    W w[O::kVectors];
    if constexpr (nibbles) {
      w[0] = table.of(raw);
      w[1] = table.of(shifted(raw, 4));
      w[2] = table.of(shifted(raw, 8));
      w[3] = table.of(shifted(raw, 12));
    } else {
      w[0] = low_bytes(raw);
      w[1] = high_bytes(raw);
    }
    const F scale = lane_scales<O::kColumns, size>(scales, part);
    for (int r = 0; r < rows; ++r) {
      const std::int16_t* from = x + r * x_stride + part * kWords;
      W sum{};
      for (int v = 0; v < O::kVectors; ++v) {
        sum = add_products(sum, w[v], load_words(from + v * kWordsOfVector));
      }
      sums[r] += as_floats(sum) * scale * splat(x_scales[r * blocks]);
    }
  }
}

// `rows` rows of x by one row of the weight. scales: of its groups, in fp32.
template <int rows, int size, bool nibbles>
void multiply_row(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t row,
                  const CodedRows& w, const std::uint8_t* codes, const float* scales) {
  using O = Order<nibbles>;
  constexpr int kScales = static_cast<int>(kCodeBlock) / size;
  const WordTable table(w.integers);
  const std::int64_t blocks = code_blocks(w.columns);
  const std::int64_t x_stride = blocks * kCodeBlock;
  const std::int16_t* values = x.values + row * x_stride;
  const float* x_scales = x.scales + row * blocks;
  const std::int64_t whole = w.columns / kCodeBlock;
  F total[rows] = {};
  for (std::int64_t b = 0; b < whole; ++b) {
    __builtin_prefetch(codes + b * O::kBytes + kAhead);
    if (!nibbles) __builtin_prefetch(codes + b * O::kBytes + kAhead + 64);
    add_block<rows, size, nibbles>(total, codes + b * O::kBytes, table, scales + b * kScales,
                                   values + b * kCodeBlock, x_stride, x_scales + b, blocks);
  }
  if (whole < blocks) {
    std::uint8_t rest[O::kBytes] = {};
    const std::int64_t columns = w.columns - whole * kCodeBlock;
    __builtin_memcpy(rest, codes + whole * O::kBytes,
                     static_cast<std::size_t>(nibbles ? columns / 2 : columns));
    add_block<rows, size, nibbles>(total, rest, table, scales + whole * kScales,
                                   values + whole * kCodeBlock, x_stride, x_scales + whole, blocks);
  }
  for (int r = 0; r < rows; ++r) sums[(row + r) * stride] = add_lanes(total[r]);
}

template <int size, bool nibbles>
PITON_INLINE void multiply_rows_of(float* sums, std::int64_t stride, const IntegerRows& x,
                                   std::int64_t rows, const CodedRows& w, const std::uint8_t* codes,
                                   const float* scales) {
  std::int64_t row = 0;
  for (; row + 8 <= rows; row += 8)
    multiply_row<8, size, nibbles>(sums, stride, x, row, w, codes, scales);
  for (; row + 4 <= rows; row += 4)
    multiply_row<4, size, nibbles>(sums, stride, x, row, w, codes, scales);
  for (; row + 2 <= rows; row += 2)
    multiply_row<2, size, nibbles>(sums, stride, x, row, w, codes, scales);
  if (row < rows) multiply_row<1, size, nibbles>(sums, stride, x, row, w, codes, scales);
}

// scales [groups] of one row, times `step`; after them zeros for the columns after the last.
PITON_INLINE void widen_scales(float* to, const CodedRows& w, std::int64_t row) {
  const auto convert = [&](const auto* from) __attribute__((always_inline)) {
    std::int64_t i = 0;
    for (; i + kLanes <= w.groups; i += kLanes) store(to + i, load(from + i) * w.step);
    for (; i < w.groups; ++i) to[i] = load(from + i, 1)[0] * w.step;
  };
  if (w.scale_type == Type::kF16) {
    convert(static_cast<const Half*>(w.scales) + row * w.groups);
  } else {
    convert(static_cast<const float*>(w.scales) + row * w.groups);
  }
  store(to + w.groups, splat(0));
}

// Scales of whole blocks where a group has several of them, or where one has the whole row.
PITON_INLINE void repeat_scales(float* scales, const CodedRows& w) {
  const std::int64_t blocks = code_blocks(w.columns);
  for (std::int64_t b = blocks - 1; b >= 0; --b) scales[b] = scales[b * kCodeBlock / w.group];
}

// The sum over groups of scale * zero * (sum of x).
PITON_INLINE float zero_part(const CodedRows& w, std::int64_t row, const float* scales,
                             const float* group_sums) {
  const float* zeros = w.zeros + row * w.groups;
  F sum = splat(0);
  for_vectors(
      w.groups, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
        sum += load(scales + i, count) * load(zeros + i, count) * load(group_sums + i, count);
      });
  return sum_lanes(sum);
}

void multiply(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
              const CodedRows& w, std::int64_t begin, std::int64_t end, float* memory) {
  for (std::int64_t o = begin; o < end; ++o) {
    float* to = sums + (o - begin);
    const std::uint8_t* codes = w.codes + o * w.stride;
    widen_scales(memory, w, o);
    float shift[kMostCodeRows];
    if (w.zeros != nullptr) {
      for (std::int64_t r = 0; r < rows; ++r)
        shift[r] = zero_part(w, o, memory, x.group_sums + r * w.groups);
    }
    if (w.group == 32) {
      w.nibbles ? multiply_rows_of<32, true>(to, stride, x, rows, w, codes, memory)
                : multiply_rows_of<32, false>(to, stride, x, rows, w, codes, memory);
    } else if (w.group == 64) {
      w.nibbles ? multiply_rows_of<64, true>(to, stride, x, rows, w, codes, memory)
                : multiply_rows_of<64, false>(to, stride, x, rows, w, codes, memory);
    } else {
      if (w.group != kCodeBlock) repeat_scales(memory, w);
      w.nibbles ? multiply_rows_of<128, true>(to, stride, x, rows, w, codes, memory)
                : multiply_rows_of<128, false>(to, stride, x, rows, w, codes, memory);
    }
    if (w.zeros == nullptr) continue;
    for (std::int64_t r = 0; r < rows; ++r) to[r * stride] -= shift[r];
  }
}

// One block; returns its scale, NaN if a value is not finite.
PITON_INLINE float round_block(std::int16_t* to, const float* x, std::int64_t n, bool nibbles) {
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
  std::int32_t rounded[kCodeBlock];
  for (int i = 0; i < kCodeBlock; i += kLanes) {
    // Adding 1.5 * 2^23 rounds to nearest even.
    const F moved = load(block + i) * splat(inverse) + splat(0x1.8p23F);
    const I bits = (I)moved - splat_i(0x4B400000);
    __builtin_memcpy(rounded + i, &bits, sizeof bits);
  }
  for (int c = 0; c < kCodeBlock; ++c) {
    const int at = nibbles ? Order<true>::place(c) : Order<false>::place(c);
    to[at] = static_cast<std::int16_t>(rounded[c]);
  }
  return scale + sum_lanes(finite);
}

void round_row(const IntegerRows& to, std::int64_t row, const float* x, const CodedRows& w) {
  const std::int64_t blocks = code_blocks(w.columns);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t rest = w.columns - b * kCodeBlock;
    to.scales[row * blocks + b] =
        round_block(to.values + (row * blocks + b) * kCodeBlock, x + b * kCodeBlock,
                    rest < kCodeBlock ? rest : kCodeBlock, w.nibbles);
  }
  if (to.group_sums == nullptr) return;
  for (std::int64_t g = 0; g < w.groups; ++g) {
    const std::int64_t rest = w.columns - g * w.group;
    F sum = splat(0);
    for_vectors(
        rest < w.group ? rest : w.group, [&](std::int64_t i, auto count)
                                             __attribute__((always_inline)) {
                                               sum += load(x + g * w.group + i, count);
                                             });
    // `step` is in the scales that these sums are multiplied with.
    to.group_sums[row * w.groups + g] = sum_lanes(sum) / w.step;
  }
}

PITON_INLINE float scale_at(const CodedRows& w, std::int64_t row, std::int64_t group) {
  if (w.scale_type == Type::kF32) {
    return static_cast<const float*>(w.scales)[row * w.groups + group];
  }
  return load(static_cast<const Half*>(w.scales) + row * w.groups + group, 1)[0];
}

PITON_INLINE void expand_bytes(float* to, const std::uint8_t* codes, std::int64_t n, float scale,
                               float zero) {
  typedef signed char B __attribute__((vector_size(kLanes)));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F code = __builtin_convertvector(load_bits<B>(codes + i), F);
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
  const std::uint8_t* codes = w.codes + row * w.stride;
  for (std::int64_t at = first; at < first + n;) {
    const std::int64_t group = at / w.group;
    const std::int64_t end = (group + 1) * w.group < first + n ? (group + 1) * w.group : first + n;
    const float scale = scale_at(w, row, group);
    const float zero = w.zeros != nullptr ? w.zeros[row * w.groups + group] : 0;
    if (!w.nibbles) {
      expand_bytes(to + (at - first), codes + at, end - at, scale, zero);
    } else {
      float table[16];
      for (int code = 0; code < 16; ++code) table[code] = (w.values[code] - zero) * scale;
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
