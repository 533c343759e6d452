// Matrices of 8-bit floating numbers (E4M3) with scales, in a Hugging Face folder. config.json has
// "quantization_config"; a module X has
//
//   quant_method        tensor              type and shape
//   fp8                 X.weight            F8_E4M3 [out, in]: q
//                       X.weight_scale_inv  F32, BF16 or F16 [ceil(out / R), ceil(in / C)] with
//                                           "weight_block_size" [R, C]; one element with null. With
//                                           "scale_fmt" "ue8m0" also U8 or F8_E8M0: 2^(byte - 127)
//   compressed-tensors  X.weight            F8_E4M3 [out, in]: q
//                       X.weight_scale      F32, BF16 or F16: one element of a tensor, [out] or
//                                           [out, 1] of channels, the shape above of blocks
//
// The weight is s q, in the type that config.json names, or else in bf16. A module without scales
// has its weight as it is. Scales of activations say how other programs multiply: they are skipped.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "huggingface/files/config_file.h"
#include "huggingface/files/quantized_matrix.h"

namespace piton {

struct Float8Scheme {
  std::string scale;               // the end of its name
  std::int64_t block_rows = 0;     // 0: all
  std::int64_t block_columns = 0;  // 0: all
  bool exponents = false;          // scales may be exponents of 2
  DType dtype = DType::kBF16;      // of the values
};

// Of quant_method "fp8". Throws Error(kData) with the key for what Piton does not compute.
Float8Scheme float8_scheme(const HfConfig& config);
// Of compressed-tensors, and whether that describes floating numbers.
bool is_compressed_float(const HfConfig& config);
Float8Scheme compressed_float_scheme(const HfConfig& config);

struct Float8Matrix final : QuantizedMatrix {
  Float8Scheme scheme;
  HfTensor scales;

  DType dtype() const override { return scheme.dtype; }
  // Throws Error(kData) for a number or scale that is not finite.
  void read_values(std::int64_t row, std::span<float> values) const override;
};

// Takes the tensors of such matrices out of `named`, and those of activations. By the name of the
// weight. Throws Error(kData) for one that lacks a tensor, or has one of another type or shape.
std::map<std::string, Float8Matrix> take_float8(const Float8Scheme& scheme,
                                                std::map<std::string, HfTensor>& named);

}  // namespace piton
