// The weights of a GGUF file as canonical tensors (checkpoint/tensor_source.h).
//
// Opening checks the tensors against the keys: every tensor of the model must be in the file, with
// its shape, and no other tensor may be. Quantized weights are read as fp32 values, or as
// the codes of their blocks, if their type has codes. Values in another form (gguf_transform.h) are
// read in fp32.
//
// The head is tied if output.weight is missing, or has the same bits as the token table.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "gguf/gguf_file.h"
#include "gguf/gguf_places.h"

namespace piton {

class GgufSource final : public TensorSource {
 public:
  // Throws Error(kData) naming file, key or tensor.
  explicit GgufSource(const std::filesystem::path& path);

  const GgufFile& file() const { return file_; }
  const GgufArchitecture& architecture() const { return architecture_; }
  const ModelConfig& model() const { return model_; }
  // model_type of a Hugging Face folder that is made from it.
  const std::string& family() const;

  // How a canonical tensor is stored in this file.
  GgmlType stored_type(const std::string& name) const { return places_.at(name).stored->type; }
  const GgufPlace& place(const std::string& name) const { return places_.at(name).place; }

  std::string where() const override { return file_.where(); }
  // Empty for kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  std::optional<CodeFormat> stored_format(const std::string& name) const override;
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override;

 private:
  struct Place {
    GgufPlace place;
    CanonicalTensor tensor;
    const GgufTensor* stored = nullptr;
    const GgufTensor* values = nullptr;  // GgufPlace::values
  };

  void find_tensors();
  void decide_head();
  void read_rows(const Place& place, const TensorRun& run, DType dtype, std::byte* dst) const;
  void read_heads(const Place& place, const TensorRun& run, DType dtype, std::byte* dst) const;
  void decode(const GgufTensor& stored, std::int64_t first_row, std::span<float> values) const;

  GgufFile file_;
  GgufArchitecture architecture_;
  ModelConfig model_;
  std::map<std::string, Place> places_;  // by canonical name
};

// The values of `source` after a round trip through the types of `file`: each is encoded as in
// `file`, and decoded again. Used to verify a file that was written from `source`.
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
