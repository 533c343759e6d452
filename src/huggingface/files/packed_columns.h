// Matrices of GPTQ (AutoGPTQ, GPTQModel) and AWQ (AutoAWQ) in a Hugging Face folder: whole numbers
// q in words of 32 bits, stored transposed. config.json has "quantization_config" with the
// "quant_method" "gptq" or "awq", "bits" and "group_size", the rows of [in] that share a scale (-1:
// all). A module X has in the place of X.weight [out, in]:
//
//   tensor     type and shape of GPTQ                    of AWQ, with 4 bits
//   X.qweight  I32 [in bits / 32, out]: q of a column    I32 [in, out / 8]: eight q of a row, in
//   the
//              in a row of bits, from the lowest on      order 0, 2, 4, 6, 1, 3, 5, 7
//   X.qzeros   I32 [groups, out bits / 32]: z, packed    I32 [groups, out / 8], as qweight
//              along out in the same way
//   X.scales   F16, BF16 or F32 [groups, out]: s         the same
//   X.g_idx    I32 [in]: the group of each of [in];      none
//              absent: in order
//
// The weight is s (q - z). "checkpoint_format" "gptq", which is the default, stores z - 1,
// "gptq_v2" z. bits of GPTQ: 2, 3, 4, 8.
//
// If groups are in order, matrices are held as codes, those of 2 and 3 bits in 4. With another
// order
// ("desc_act") they are values. To give rows of [out], the matrices read last are kept in memory as
// they are packed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "huggingface/files/config_file.h"
#include "huggingface/files/quantized_matrix.h"

namespace piton {

struct PackedScheme {
  bool awq = false;
  int bits = 4;
  std::int64_t group = 0;  // 0: all columns
  int zero_offset = 0;     // added to a stored zero point
};

// Of quant_method "gptq" or "awq". Throws Error(kData) with the key for what Piton does not read.
PackedScheme packed_scheme(const HfConfig& config);

// The tensors of a matrix, whole.
struct PackedWords {
  std::vector<std::uint32_t> codes;
  std::vector<std::uint32_t> zeros;
  std::vector<float> scales;
};

struct PackedColumnsMatrix;

// The tensors of the matrices that were read last, for all matrices of a folder.
class PackedCache {
 public:
  // Throws Error(kData) for a scale that is not finite.
  std::shared_ptr<const PackedWords> words_of(const PackedColumnsMatrix& matrix);

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<const PackedWords>>> newest_last_;
};

struct PackedColumnsMatrix final : QuantizedMatrix {
  PackedScheme scheme;
  HfTensor zeros;
  HfTensor scales;
  std::vector<std::int32_t> order;  // the group of each column; empty: in order
  std::shared_ptr<PackedCache> cache;

  std::int64_t groups() const;
  std::optional<CodeFormat> format() const override;
  void read_codes(const StoredRow& part, const CodedRow& to) const override;
  void read_values(std::int64_t row, std::span<float> values) const override;
};

// Takes the tensors of such matrices out of `named`. By the name of the weight. Throws Error(kData)
// for one that lacks a tensor, or has one of another type or shape.
QuantizedMatrices take_packed(const PackedScheme& scheme, std::map<std::string, HfTensor>& named);

}  // namespace piton
