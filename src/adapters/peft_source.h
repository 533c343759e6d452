// The adapter in a folder of PEFT, as canonical tensors (nn/adapters.h).
//
//   adapter_config.json                      rank, alpha and variants (adapters/peft_config.h)
//   adapter_model.safetensors or .bin        base_model.model.MODULE.lora_A.weight    [r, in]
//                                            base_model.model.MODULE.lora_B.weight    [out, r]
//                                            base_model.model.MODULE.lora_magnitude_vector
//                                            [out] with use_dora
//                                            base_model.model.MODULE.weight           trained in
//                                            full
//
// MODULE is a module of the Hugging Face model, so where its rows are follows from the places of
// the family (huggingface/family.h). A module that holds several matrices, as query, key and value
// or gate and up, has one A for all; the rows of its B are those of its matrices, in the order of
// the rows of the module.
//
// Of experts that are one parameter of a module, peft_experts.h has the form.
//
// What is adapted is decided by the tensors of the file, not by target_modules. Error(kData) names
// the file and the tensor: one that is no part of the model, has another shape or rank than the
// configuration says, or lacks its partner.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/peft_config.h"
#include "adapters/peft_experts.h"
#include "checkpoint/file_tensor.h"
#include "checkpoint/tensor_source.h"
#include "huggingface/family.h"
#include "huggingface/files/tensor_files.h"
#include "model/config.h"
#include "nn/adapters.h"

namespace piton {

inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";
inline constexpr const char* kPeftPickledName = "adapter_model.bin";
inline constexpr const char* kPeftLabelTask =
    "SEQ_CLS";  // task_type of classifiers, of rewards too
// In the metadata of the weights that Piton writes, and in configurations: what the head of such an
// adapter gives (base/options/problem_types.h). PEFT reads it nowhere, and keeps it nowhere.
inline constexpr const char* kPeftProblem = "problem_type";
inline constexpr std::string_view kPeftPrefix = "base_model.model.";  // of names of modules

// True if the folder has an adapter_config.json.
bool is_peft_folder(const std::filesystem::path& folder);

// The text of the folder's adapter_config.json. Throws Error(kData) if it cannot be read or is a
// link that leads out of the folder.
std::string read_peft_config(const std::filesystem::path& folder);

// The file of the folder that has the weights. Throws Error(kData) if there is none.
std::string peft_weights_name(const std::filesystem::path& folder);

// The name of a tensor of the file without kPeftPrefix, if it has that.
std::string without_peft_prefix(const std::string& name);

// The module that this tensor of the file adapts ("model.layers.0.self_attn.q_proj"); nullopt for a
// tensor of the model.
std::optional<std::string> peft_module_of(const std::string& tensor);

// Of an adapter of a classifier or of a reward model (model/label_head.h), how many labels it has;
// else 0. Throws Error(kData) for a configuration that cannot be read.
std::int64_t labels_of_adapter(const std::filesystem::path& folder);

// kPeftProblem of an adapter: of its configuration, else of its weights; "": neither has it.
std::string problem_of_adapter(const std::filesystem::path& folder);

class PeftSource final : public TensorSource {
 public:
  // `model`: that the adapter is for; `family`: of its Hugging Face form.
  PeftSource(const std::filesystem::path& folder, const ModelConfig& model, const HfFamily& family);

  // Which linears have an adapter, and what is trained in full.
  const Adapters& adapters() const { return adapters_; }
  const PeftConfig& config() const { return config_; }

  std::string where() const override { return files_.folder().string(); }
  // None of kOptimizer.
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override;
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override;

 private:
  struct Place {
    HfPlace place;
    CanonicalTensor tensor;
    HfTensor stored;
    Tensor values = {};  // if they are not in the order of the file: of `tensor`, in host memory
  };
  // Tensors of a module of the file.
  struct Module {
    const HfTensor* a = nullptr;
    const HfTensor* b = nullptr;
    const HfTensor* magnitude = nullptr;

    const HfTensor& any() const { return a != nullptr ? *a : b != nullptr ? *b : *magnitude; }
  };

  void read_tensors(const ModelConfig& model, const HfFamily& family);
  void check_parts(const std::string& name, const Module& module) const;
  void add_module(const std::string& name, const Module& module, const std::vector<HfPlace>& places,
                  const std::map<std::string, Shape>& shapes);
  void add_experts(const ExpertParameter& parameter, const Module& module, std::int64_t experts);
  void add_whole(const HfTensor& stored, const std::vector<HfPlace>& places,
                 const ModelConfig& model);
  void add(const HfPlace& place, const Shape& shape, const HfTensor& stored,
           const Tensor& values = {});
  void check_tied(const ModelConfig& model);

  HfTensorFiles files_;
  PeftConfig config_;
  Adapters adapters_;
  std::map<std::string, Place> places_;  // by canonical name
};

// The adapter of these matrices together (nn/adapters.h: "layers.3.attention.qkv"); nullopt: they
// share none, or are no matrices of a linear. `weights`: canonical names
// ("layers.3.attention.query.weight").
std::optional<std::string> adapter_of_weights(const std::vector<std::string>& weights);

}  // namespace piton
