// The weights of a GGUF file as canonical tensors (checkpoint/tensor_source.h).
//
// Opening compares the keys with the tensors: every tensor of the model is there in its shape, and
// nothing else is. Quantized weights are read as the fp32 values that their blocks stand for. Gains
// of norms whose canonical weights are differences from 1 are read as gain - 1, in fp32.
//
// The head is tied where output.weight is missing, or is the token table's copy to the bit.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_places.h"

namespace piton {

class GgufSource final : public TensorSource {
 public:
  // Throws Error(kData) that names file, key or tensor.
  explicit GgufSource(const std::filesystem::path& path);

  const GgufFile& file() const { return file_; }
  const GgufArchitecture& architecture() const { return architecture_; }
  const ModelConfig& model() const { return model_; }

  // Of a canonical tensor of this file: how it is stored.
  GgmlType stored_type(const std::string& name) const { return places_.at(name).stored->type; }
  bool stored_from_one(const std::string& name) const { return places_.at(name).place.from_one; }

  std::string where() const override { return file_.where(); }
  // None of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  struct Place {
    GgufPlace place;
    CanonicalTensor tensor;
    const GgufTensor* stored = nullptr;
  };

  void find_tensors();
  void decide_head();
  void read_rows(const Place& place, const TensorRun& run, DType dtype, std::byte* dst) const;

  GgufFile file_;
  GgufArchitecture architecture_;
  ModelConfig model_;
  std::map<std::string, Place> places_;  // by canonical name
};

// What a GGUF file would hold of another source: each value after it was encoded as in `file`, and
// decoded again. What is compared with the file when that was written from `source`.
class AsGgufHolds final : public TensorSource {
 public:
  AsGgufHolds(TensorSource& source, const GgufSource& file) : source_(source), file_(file) {}

  std::string where() const override { return source_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  TensorSource& source_;
  const GgufSource& file_;
};

}  // namespace piton
