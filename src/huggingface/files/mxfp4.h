// Matrices of experts in MXFP4 (OCP Microscaling Formats 1.0), in a Hugging Face folder whose
// "quantization_config" has the quant_method mxfp4: of gpt-oss. A tensor X, which is [experts, in,
// out] elsewhere, is stored with the columns of a row of blocks as
//
//   X_blocks  U8 [experts, out, in / 32, 16]  two numbers of four bits a byte, the low one first
//   X_scales  U8 [experts, out, in / 32]      e: the 32 numbers of the block are times 2^(e - 127)
//
// A number has a sign, two bits of exponent and one of fraction: 0, 0.5, 1, 1.5, 2, 3, 4 or 6.
// Values are in bf16, as Transformers has them.
#pragma once

#include <map>
#include <string>

#include "huggingface/files/quantized_matrix.h"

namespace piton {

struct Mxfp4Matrix final : QuantizedMatrix {
  HfTensor scales;

  DType dtype() const override { return DType::kBF16; }
  // Throws Error(kData) for the scale 255, which is no number.
  void read_values(std::int64_t row, std::span<float> values) const override;
};

// Takes the tensors of such matrices out of `named`. By X. Throws Error(kData) for one that lacks a
// tensor, or has one of another type or shape.
std::map<std::string, Mxfp4Matrix> take_mxfp4(std::map<std::string, HfTensor>& named);

}  // namespace piton
