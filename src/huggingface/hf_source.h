// The weights of a Hugging Face folder as canonical tensors (checkpoint/tensor_source.h).
//
// Opening compares config.json with the files: they must have every tensor of the model, in its
// shape and with floating numbers, and no other tensor. So a partial download, a file of another
// size, and a tensor unknown to the family are found before any weight is read. Rows of the token
// table from vocab_size on are padding and are skipped.
//
// Quantized matrices (huggingface/files/quantized_matrix.h) are read as values, or as their codes.
//
// Whether the head is tied is decided by the data: it is tied if no head is stored, or if the
// stored head is a bit-for-bit copy of the token table.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/file_tensor.h"
#include "checkpoint/tensor_source.h"
#include "huggingface/families/hf_family.h"
#include "huggingface/files/config_file.h"
#include "huggingface/files/quantized_matrix.h"
#include "huggingface/files/tensor_files.h"

namespace piton {

// True if it has a config.json or weights under Hugging Face's names, and is not a checkpoint of
// Piton.
bool is_huggingface_folder(const std::filesystem::path& folder);

// The name that a tensor or module of a model with a vision part has in its language model; others
// as they are.
std::string name_in_language_model(const std::string& name);

class HfSource final : public TensorSource {
 public:
  // Throws Error(kData) with the file, key or tensor.
  explicit HfSource(const std::filesystem::path& folder);

  const HfConfig& config() const { return config_; }
  const ModelConfig& model() const { return model_; }
  const HfTensorFiles& files() const { return files_; }
  // Notes for the user, one line each: a head that is not tied although config.json ties it,
  // skipped tensors.
  const std::vector<std::string>& notes() const { return notes_; }

  std::string where() const override { return files_.folder().string(); }
  // None of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  std::optional<CodeFormat> stored_format(const std::string& name) const override;
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override;

 private:
  struct Place {
    HfPlace place;
    CanonicalTensor tensor;
    HfTensor stored;                             // not of a quantized matrix
    const QuantizedMatrix* quantized = nullptr;  // such a matrix
  };

  std::int64_t stored_later_layers() const;
  bool is_left_out(const std::string& name) const;
  std::vector<HfPlace> places_in_files() const;
  void check_tensors(const std::vector<HfPlace>& places);
  void place_quantized(const HfPlace& place, const QuantizedMatrix& matrix,
                       const std::vector<std::int64_t>& wanted, const Shape& shape);
  std::map<std::string, HfTensor> family_tensors() const;
  void decide_head();
  FileTensor file_tensor(const Place& place) const;
  // The row of the quantized matrix that has row `row` of the canonical one.
  static std::int64_t quantized_row(const Place& place, std::int64_t row);

  HfConfig config_;
  HfFamily family_;
  HfTensorFiles files_;
  ModelConfig model_;
  QuantizedMatrices quantized_;
  std::map<std::string, Place> places_;  // by canonical name
  std::vector<std::string> notes_;
};

}  // namespace piton
