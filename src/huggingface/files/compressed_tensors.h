// Matrices of whole numbers in a Hugging Face folder, as the library compressed-tensors stores them
// and vLLM and Transformers read them. config.json has "quantization_config" with the
// "quant_method" "compressed-tensors"; a module X has in the place of X.weight [out, in], with
// groups of columns:
//
//   format          tensor               type and shape
//   pack-quantized  X.weight_packed      I32 [out, ceil(in bits / 32)]: q + 2^(bits-1) as an
//                                        unsigned number, the first in the lowest bits
//   int-quantized   X.weight             I8 [out, in]: q; naive-quantized is the same
//   both            X.weight_scale       F32, BF16 or F16 [out, groups]; [out, 1] of channels,
//                                        [1] of the tensor
//                   X.weight_zero_point  only of asymmetric ones. pack-quantized: I32
//                                        [ceil(out bits / 32), groups], packed as the codes, along
//                                        rows. Else, and of a tensor: I8, as the scale
//   pack-quantized  X.weight_shape       I64 or I32 [2]
//
// The weight is s (q - z). bits: 4 or 8.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/assembly.h"
#include "checkpoint/tensor_source.h"
#include "codes/integer_codes.h"
#include "huggingface/files/config_file.h"
#include "huggingface/files/quantized_matrix.h"
#include "huggingface/files/tensor_files.h"

namespace piton {

struct CompressedScheme {
  IntegerFormat format;  // `scale`: not known
  bool packed = true;
};

// The one group of a configuration of the library, which has the scheme of all its modules.
HfConfig compressed_group(const HfConfig& quantization);

// Nullopt without the key. Throws Error(kData) for another quant_method, and for what Piton does
// not compute: numbers that are not whole (but huggingface/files/float8.h), other widths,
// activations that are quantized too.
std::optional<CompressedScheme> compressed_scheme(const HfConfig& config);

// The value of the key. `ignored`: modules with a weight that is stored as it is.
nlohmann::ordered_json quantization_config(const IntegerFormat& format,
                                           const std::vector<std::string>& ignored);

// A matrix [rows, columns] of a folder.
struct CompressedMatrix final : QuantizedMatrix {
  CompressedScheme scheme;
  HfTensor scales;
  std::optional<HfTensor> zeros;

  std::optional<CodeFormat> format() const override { return held_format(scheme.format); }
  // Throws Error(kData) for a scale that is not positive and finite.
  void read_codes(const StoredRow& part, const CodedRow& to) const override;
};

// Takes the tensors of such matrices out of `named`. By the name of the weight. Throws Error(kData)
// for those that lack a tensor, or have one of another type or shape than above.
std::map<std::string, CompressedMatrix> take_compressed(const CompressedScheme& scheme,
                                                        std::map<std::string, HfTensor>& named);

// The tensors of a matrix of module `module`, without their places.
std::vector<SafetensorsEntry> compressed_entries(const IntegerFormat& format,
                                                 const std::string& module, std::int64_t rows,
                                                 std::int64_t columns);

// Gives the bytes of `entry`, one of compressed_entries() of the matrix, in blocks. `source` has
// the parts of `matrix` as codes of the held format of `format`.
void write_compressed(TensorSource& source, const IntegerFormat& format, const Assembly& matrix,
                      const SafetensorsEntry& entry,
                      const std::function<void(std::span<const std::byte>)>& take);

}  // namespace piton
