// The weights of a Hugging Face folder as canonical tensors (checkpoint/tensor_source.h).
//
// Opening compares config.json with the files: every tensor of the model is there in its shape and
// as floating numbers, and nothing else is. So a partial download, a file of another size, and a
// tensor that the family does not know are found before any weight is read. Rows of the token table
// beyond vocab_size are padding and are left out.
//
// Whether the head is tied is decided from the data: it is where no head's table is stored, or
// where it is the token table's copy to the bit.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/file_tensor.h"
#include "checkpoint/tensor_source.h"
#include "huggingface/config_file.h"
#include "huggingface/family.h"
#include "huggingface/tensor_files.h"

namespace piton {

// It has a config.json, and is no checkpoint of Piton.
bool is_huggingface_folder(const std::filesystem::path& folder);

class HfSource final : public TensorSource {
 public:
  // Throws Error(kData) that names file, key or tensor.
  explicit HfSource(const std::filesystem::path& folder);

  const HfConfig& config() const { return config_; }
  const ModelConfig& model() const { return model_; }
  const HfTensorFiles& files() const { return files_; }
  // What a user should know, a line each: a tied head that is not, tensors that were passed over.
  const std::vector<std::string>& notes() const { return notes_; }

  std::string where() const override { return files_.folder().string(); }
  // None of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  struct Place {
    HfPlace place;
    CanonicalTensor tensor;
    HfTensor stored;
  };

  void check_tensors(const std::vector<HfPlace>& places);
  std::map<std::string, HfTensor> named_as_the_family() const;
  void decide_head();
  FileTensor file_tensor(const Place& place) const;

  HfConfig config_;
  HfFamily family_;
  HfTensorFiles files_;
  ModelConfig model_;
  std::map<std::string, Place> places_;  // by canonical name
  std::vector<std::string> notes_;
};

}  // namespace piton
