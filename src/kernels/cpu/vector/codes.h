// Few rows of x by a weight held as codes (kernels/call.h): y = x W^T, straight from the codes.
//
// Columns are divided into blocks of kCodeBlock. Each row of x is rounded to 16-bit integers with
// one scale for each block, so its error is at most 1/65534 of the block's largest value. A lane of
// a vector has the neighboring columns of a group (code_lane()); of bytes with wider groups than a
// vector's lanes, any columns, and the block of x is as wide. Integers of a lane are multiplied and
// added exactly, and these sums, times the scales of the group and of x, are added in fp32, in
// order within each lane. So neither other rows nor the division of work affect the bits.
//
// A register tile has kCodePass rows of x and, with 32 registers, two rows of the weight: codes are
// unpacked once for all rows of x, and x is loaded once for both rows of the weight.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

inline constexpr std::int64_t kCodeBlock = 128;
inline constexpr std::int64_t kCodePass = 8;
inline constexpr std::int64_t kWidestCodeSpan = 512;  // columns of the lanes of 512 bits

// A row of bytes, [in] or [in / 2], with the scales of its groups.
struct CodedRows {
  const std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  bool nibbles = false;     // two codes a byte
  std::int64_t columns = 0;
  std::int64_t group = 0;
  std::int64_t groups = 0;
  const void* scales = nullptr;  // [rows, groups]
  Type scale_type = Type::kF32;  // or fp16; with block_scales they are signed bytes
  const float* zeros = nullptr;  // [rows, groups]; none: `zero`
  // [rows, groups], subtracted after the product with the scale, and then `zero` is 0; or none.
  // fp32, or signed bytes.
  const void* minima = nullptr;
  // [rows, columns / kScaleBlock], factors of the bytes; or none.
  const float* block_scales = nullptr;
  const float* block_minima = nullptr;
  // The value of a nibble is values[code]; that of a byte itself.
  const float* values = nullptr;  // [16]
  // Products are those of code - zero or, where `is_table`, of integers[code] * step.
  float zero = 0;
  bool is_table = false;
  const std::int16_t* integers = nullptr;  // [16]
  float step = 1;
};

// x as integers: [rows, code_row_size()], in the order in which codes are unpacked.
struct IntegerRows {
  std::int16_t* values = nullptr;
  float* scales = nullptr;      // [rows, code_scales()], in the order of the lanes
  float* group_sums = nullptr;  // [rows, code_group_sums()]: for zero points and minima; or none
};

struct CodesTable {
  // x [columns] in fp32 to row `row` of `to`.
  void (*round_row)(const IntegerRows& to, std::int64_t row, const float* x, const CodedRows& w);
  // For groups of 16 bytes, of multiples of 32 columns, or one group a row; columns in multiples of
  // 32.
  // sums[r * stride + o - begin] = row r of x by row o of the weight, for rows o in [begin, end).
  // `memory`: code_memory(w) floats.
  void (*multiply)(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
                   const CodedRows& w, std::int64_t begin, std::int64_t end, float* memory);
  // Columns [first, first + n) of row `row` of the weight as fp32: scale * (code - zero), rounded
  // once for the difference and once for the product; without minima.
  void (*expand)(float* to, const CodedRows& w, std::int64_t row, std::int64_t first,
                 std::int64_t n);
};

inline constexpr std::int64_t kScaleBlockColumns = 256;  // kScaleBlock of kernels/call.h

// Scales or minima as numbers: fp32, or fp16 if `half`, or bytes with factors.
struct CodeScales {
  const void* values = nullptr;
  const float* blocks = nullptr;
  bool half = false;
};
inline CodeScales scales_of(const CodedRows& w) {
  return {w.scales, w.block_scales, w.scale_type == Type::kF16};
}
inline CodeScales minima_of(const CodedRows& w) { return {w.minima, w.block_minima, false}; }

inline std::int64_t code_blocks(std::int64_t columns) {
  return (columns + kCodeBlock - 1) / kCodeBlock;
}
// Integers from row to row of x: a cache line more than the blocks, so that the same column of all
// rows is not in the same set of the cache.
inline constexpr std::int64_t kCodeRowPadding = 32;
inline std::int64_t code_columns(std::int64_t columns) {  // of whole spans of every set
  return (columns + kWidestCodeSpan - 1) / kWidestCodeSpan * kWidestCodeSpan;
}
inline std::int64_t code_row_size(std::int64_t columns) {
  return code_columns(columns) + kCodeRowPadding;
}
// Columns of a lane: of one group, with one scale.
inline std::int64_t code_lane(const CodedRows& w) { return w.group == 16 ? 16 : 32; }
inline std::int64_t code_scales(const CodedRows& w) {
  return code_columns(w.columns) / code_lane(w);
}
inline std::int64_t code_group_sums(const CodedRows& w) { return (w.groups + 15) / 16 * 16; }
// Of multiply(): for each of two rows of the weight, its scales and what is subtracted.
inline std::int64_t code_memory(const CodedRows& w) { return 2 * 2 * (code_scales(w) + 32); }

namespace v2 {
const CodesTable& codes_table();
}
namespace v3 {
const CodesTable& codes_table();
}
namespace v4 {
const CodesTable& codes_table();
}
namespace v4_bf16 {
const CodesTable& codes_table();
}
namespace neon {
const CodesTable& codes_table();
}

}  // namespace piton::cpu
