#include "huggingface/files/quantized_tensors.h"

#include <memory>
#include <utility>

#include "huggingface/files/bitsandbytes.h"
#include "huggingface/files/compressed_tensors.h"
#include "huggingface/files/float8.h"
#include "huggingface/files/mxfp4.h"
#include "huggingface/files/packed_columns.h"

namespace piton {
namespace {

using Named = std::map<std::string, HfTensor>;

template <typename Matrix>
QuantizedMatrices held(std::map<std::string, Matrix>&& matrices) {
  QuantizedMatrices all;
  for (auto& [name, matrix] : matrices) all[name] = std::make_unique<Matrix>(std::move(matrix));
  return all;
}

// `named`: null to read the configuration alone.
QuantizedMatrices compressed_tensors(const HfConfig& config, Named* named) {
  if (is_compressed_float(config)) {
    const Float8Scheme scheme = compressed_float_scheme(config);
    return named == nullptr ? QuantizedMatrices() : held(take_float8(scheme, *named));
  }
  const CompressedScheme scheme = *compressed_scheme(config);
  return named == nullptr ? QuantizedMatrices() : held(take_compressed(scheme, *named));
}

QuantizedMatrices float8(const HfConfig& config, Named* named) {
  const Float8Scheme scheme = float8_scheme(config);
  return named == nullptr ? QuantizedMatrices() : held(take_float8(scheme, *named));
}

QuantizedMatrices by_method(const HfConfig& config, Named* named) {
  if (!config.has(kQuantizationKey)) return {};
  const HfConfig said = config.object(kQuantizationKey);
  const bool unnamed = said.has("load_in_4bit") || said.has("load_in_8bit");  // older folders
  const std::string method =
      unnamed ? said.word("quant_method", "bitsandbytes") : said.word("quant_method");
  if (method == "compressed-tensors") return compressed_tensors(config, named);
  if (method == "fp8") return float8(config, named);
  if (method == "bitsandbytes")
    return named == nullptr ? QuantizedMatrices() : take_bitsandbytes(*named);
  if (method == "gptq" || method == "awq") {
    const PackedScheme scheme = packed_scheme(config);
    return named == nullptr ? QuantizedMatrices() : take_packed(scheme, *named);
  }
  if (method == "mxfp4") return named == nullptr ? QuantizedMatrices() : held(take_mxfp4(*named));
  said.refuse("quant_method", "compressed-tensors, fp8, mxfp4, bitsandbytes, gptq or awq");
}

}  // namespace

void check_quantization(const HfConfig& config) { by_method(config, nullptr); }

QuantizedMatrices take_quantized(const HfConfig& config, Named& named) {
  return by_method(config, &named);
}

}  // namespace piton
