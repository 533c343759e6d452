// Few rows of x by a weight held as codes (kernels/call.h): y = x W^T, straight from the codes.
//
// Columns are divided into blocks of kCodeBlock. Each row of x is rounded to 16-bit integers with
// one scale for each block, so its error is at most 1/65534 of the block's largest value. Integers
// are multiplied and added exactly within a group and a block, and the sums of blocks are added in
// fp32, in order within each lane. So neither other rows nor the division of work affect the bits.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/table.h"

namespace piton::cpu {

inline constexpr std::int64_t kCodeBlock = 128;
inline constexpr std::int64_t kMostCodeRows = 16;

// A row of bytes, [in] or [in / 2], with the scales of its groups.
struct CodedRows {
  const std::uint8_t* codes = nullptr;
  std::int64_t stride = 0;  // bytes from row to row
  bool nibbles = false;     // two codes a byte
  std::int64_t columns = 0;
  std::int64_t group = 0;
  std::int64_t groups = 0;
  const void* scales = nullptr;  // [rows, groups]
  Type scale_type = Type::kF32;  // or fp16
  const float* zeros = nullptr;  // [rows, groups], or none
  // The value of a nibble is values[code], about integers[code] * step; that of a byte itself.
  const float* values = nullptr;           // [16]
  const std::int16_t* integers = nullptr;  // [16]
  float step = 1;
};

// x as integers: [rows, blocks, kCodeBlock] in the order of the codes, one scale a block.
struct IntegerRows {
  std::int16_t* values = nullptr;
  float* scales = nullptr;      // [rows, blocks]
  float* group_sums = nullptr;  // [rows, groups]: sums of x, for zero points; or none
};

struct CodesTable {
  // x [columns] in fp32 to row `row` of `to`.
  void (*round_row)(const IntegerRows& to, std::int64_t row, const float* x, const CodedRows& w);
  // For groups of 32, of 64 or of whole blocks, or one group a row; columns in whole quarters of
  // blocks; at most kMostCodeRows rows.
  // sums[r * stride + o - begin] = row r of x by row o of the weight, for rows o in [begin, end).
  // `memory`: code_memory(columns) floats.
  void (*multiply)(float* sums, std::int64_t stride, const IntegerRows& x, std::int64_t rows,
                   const CodedRows& w, std::int64_t begin, std::int64_t end, float* memory);
  // Columns [first, first + n) of row `row` of the weight as fp32: scale * (code - zero), rounded
  // once for the difference and once for the product.
  void (*expand)(float* to, const CodedRows& w, std::int64_t row, std::int64_t first,
                 std::int64_t n);
};

inline std::int64_t code_blocks(std::int64_t columns) {
  return (columns + kCodeBlock - 1) / kCodeBlock;
}
// Of multiply().
inline std::int64_t code_memory(std::int64_t columns) { return 4 * code_blocks(columns) + 32; }

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

}  // namespace piton::cpu
