// Matrices of the library bitsandbytes in a Hugging Face folder. config.json has
// "quantization_config" with the "quant_method" "bitsandbytes"; a module X has
//
//   4 bits  X.weight                   U8, out in / 2 bytes: places in quant_map of two elements of
//                                      the flattened matrix, the first in the high four bits
//           X.weight.quant_map         F32 [16]: nf4 or fp4
//           X.weight.absmax            F32 [blocks]: of "blocksize" elements of the flattened
//                                      matrix each. With double quantization U8: places in
//                                      nested_quant_map
//           X.weight.nested_quant_map  F32 [256]
//           X.weight.nested_absmax     F32: of "nested_blocksize" blocks each
//           X.weight.quant_state.bitsandbytes__nf4 (or fp4)
//                                      U8: JSON with quant_type, blocksize, dtype, shape [out, in],
//                                      nested_blocksize, nested_offset
//   8 bits  X.weight                   I8 [out, in]
//           X.SCB                      F32 [out]: the largest magnitude of a row
//           X.weight_format            0, or absent: in rows
//
// With 4 bits a weight is quant_map[code] absmax, where absmax is with double quantization
// nested_quant_map[place] nested_absmax + nested_offset; with 8 bits it is code SCB / 127.
//
// Matrices of 8 bits, and of nf4 in blocks of 64 that divide the rows, are held as codes. Others
// are values, rounded to the "dtype" of the state.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "huggingface/files/quantized_matrix.h"

namespace piton {

struct Int8RowMatrix final : QuantizedMatrix {
  HfTensor largest;  // SCB

  std::optional<CodeFormat> format() const override;
  // Throws Error(kData) for a number of SCB that is not finite.
  void read_codes(const StoredRow& part, const CodedRow& to) const override;
};

struct FourBitMatrix final : QuantizedMatrix {
  std::vector<float> map;  // [16]
  HfTensor largest;        // absmax
  std::int64_t block = 64;
  DType value_dtype = DType::kF32;
  struct Nested {
    HfTensor largest;
    std::vector<float> map;  // [256]
    std::int64_t block = 256;
    float offset = 0;
  };
  std::optional<Nested> nested;

  DType dtype() const override;
  std::optional<CodeFormat> format() const override;
  // Throw Error(kData) for a scale that is not finite.
  void read_codes(const StoredRow& part, const CodedRow& to) const override;
  void read_values(std::int64_t row, std::span<float> values) const override;

 private:
  std::vector<float> scales(std::int64_t first, std::int64_t count) const;
};

// Takes the tensors of such matrices out of `named`. By the name of the weight. Throws Error(kData)
// for one that lacks a tensor, or has one of another type or shape.
QuantizedMatrices take_bitsandbytes(std::map<std::string, HfTensor>& named);

}  // namespace piton
