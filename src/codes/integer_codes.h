// Whole numbers q with a scale s for each row, group of columns or tensor, and with zero points z
// where the range of the values is not symmetric:  w = s (q - z)
//
//   bits   symmetric: s, z, q           with zero points: s, z, q
//   8      max|w| / 127, 0, -127..127   (max - min) / 255, -128 .. 127, -128 .. 127
//   4      max|w| / 7.5, 8, 0 .. 15     (max - min) / 15, 0 .. 15, 0 .. 15
//
// q is the nearest to w / s + z, half to even, within its range; z is whole, so that 0 is exact.
// The range of zero points includes 0. The offset that is added to q in other definitions, w = s (q
// + offset), is -z. A scale that would be 0 is 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "codes/code_format.h"
#include "tensor/dtype.h"

namespace piton {

struct IntegerFormat {
  int bits = 8;               // 8 or 4
  std::int64_t group = 0;     // columns with one scale; 0: the whole row
  bool whole_tensor = false;  // one scale for all rows of a tensor; only with group 0
  bool symmetric = true;
  DType scale = DType::kF32;  // to which scales are rounded before codes are: fp32, bf16 or fp16

  bool operator==(const IntegerFormat&) const = default;
};

// How WeightCodes hold it: int8, int8-zeros or int4-zeros. Symmetric codes of 4 bits have zero
// points that are all 8.
CodeFormat held_format(const IntegerFormat& format);

// The least and the largest value, and 0. NaN if a value is not finite.
struct ValueRange {
  float low = 0;
  float high = 0;

  static ValueRange of(std::span<const float> values);
  void add(const ValueRange& other);
};

struct IntegerScale {
  float scale = 1;
  float zero = 0;
};

// Not finite where the range is not, or where it is too large for the type of the scale.
IntegerScale integer_scale(const IntegerFormat& format, const ValueRange& range);

// The code of a value that is `units` = w / s.
std::int32_t integer_code(const IntegerFormat& format, const IntegerScale& scale, float units);

// One byte a code.
void integer_codes(const IntegerFormat& format, const IntegerScale& scale,
                   std::span<const float> values, std::byte* codes);

// Quantizes a row, with the scales that follow from it, or with `given` for all of it. Throws
// Error(kData), beginning with `where`, for values that are not finite or too large for a scale.
void encode_integers(const IntegerFormat& format, std::span<const float> values, const CodedRow& to,
                     const std::string& where);
void encode_integers(const IntegerFormat& format, const IntegerScale& given,
                     std::span<const float> values, const CodedRow& to);

// values[j] = s (q - z) of a row of one of the held formats, in fp32.
void integer_values(const CodeFormat& held, const CodedRow& row, std::span<float> values);

[[noreturn]] void refuse_scale(const std::string& where);

}  // namespace piton
