// The quantized matrices of a Hugging Face folder, by whatever method config.json names.
#pragma once

#include <map>
#include <string>

#include "huggingface/files/config_file.h"
#include "huggingface/files/quantized_matrix.h"

namespace piton {

// Throws Error(kData) with the key if "quantization_config" has a method that Piton does not read.
void check_quantization(const HfConfig& config);

// Takes the tensors of quantized matrices out of `named`. By the name of the weight; none without
// "quantization_config". Throws Error(kData) with the key or tensor that is wrong.
QuantizedMatrices take_quantized(const HfConfig& config, std::map<std::string, HfTensor>& named);

}  // namespace piton
