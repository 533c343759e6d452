// The matrices of a model's layers as whole numbers (codes/integer_codes.h), as sources: rounded to
// the nearest, or by GPTQ (codes/gptq.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_source.h"
#include "codes/integer_codes.h"
#include "convert/convert_options.h"
#include "huggingface/family.h"
#include "model/config.h"
#include "model_files/opened_model.h"
#include "session/machine.h"

namespace piton {

// Those that are quantized, by canonical name.
bool is_coded_matrix(const CanonicalTensor& tensor);

// A source that has these matrices as codes, and all else as `model`, which must outlive it.
class CodedSource : public TensorSource {
 public:
  // Throws Error(kUsage) for a matrix whose columns are no whole groups.
  CodedSource(TensorSource& model, const IntegerFormat& format);

  const IntegerFormat& format() const { return format_; }

  std::string where() const override { return model_.where(); }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;
  std::optional<CodeFormat> stored_format(const std::string& name) const override;

 protected:
  TensorSource& model_;
  IntegerFormat format_;
  std::map<std::string, Shape> matrices_;
};

// Rounded to the nearest, when they are read. `places`: matrices that are parts of one tensor of a
// file have one scale with IntegerFormat::whole_tensor.
class NearestCodes final : public CodedSource {
 public:
  NearestCodes(TensorSource& model, const IntegerFormat& format, std::vector<HfPlace> places);
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override;

 private:
  const IntegerScale& scale_of_tensor(const std::string& name);
  void read_row(const std::string& name, const StoredRow& row, std::vector<float>& values);

  std::vector<HfPlace> places_;
  std::map<std::string, IntegerScale> scales_;  // by name in the files
  std::vector<float> values_;
};

// By GPTQ. The codes of a layer are computed from the outputs of the layers before it, which are
// quantized already, and written into a file of `folder`: one layer is in memory.
class GptqCodes final : public CodedSource {
 public:
  struct Work {
    const Machine& machine;
    const ModelConfig& model;
    const std::vector<std::vector<std::int32_t>>& samples;  // token ids
    const std::filesystem::path& folder;                    // exists
    Progress& progress;
  };
  GptqCodes(TensorSource& model, const CodedWeights& wanted, const Work& work);
  void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) override;
  std::optional<CodeFormat> stored_format(const std::string& name) const override;

 private:
  struct Squares;
  void quantize_layer(const Squares& squares, const CodedWeights& wanted, const Work& work);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*> file_of_;  // of the matrices that are quantized
};

// `model` as `wanted` says, whose `scale` it sets; `from.source` must outlive it. GPTQ computes all
// codes now, into `folder`, which it makes. Throws Error(kUsage) for a model that cannot be written
// so: an encoder, or matrices that are stored transposed.
struct CodedModel {
  const Machine& machine;
  const OpenedModel& from;
  const std::filesystem::path& folder;
  Progress& progress;
};
std::unique_ptr<CodedSource> make_coded(const CodedModel& model, CodedWeights& wanted);

// Throws as make_coded(), without the work.
void check_coded(const OpenedModel& from, const CodedWeights& wanted);

// The token ids of a calibration text in samples. Throws Error(kData) with the file for one that
// gives none.
std::vector<std::vector<std::int32_t>> calibration_samples(const CodedWeights& wanted,
                                                           const Tokenizer& tokenizer,
                                                           const ModelConfig& model);

}  // namespace piton
