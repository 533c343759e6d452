// A small Hugging Face folder of a family, of sizes that every layout of up to four ranks divides,
// with weights drawn at random. The golden folders have odd widths on purpose, which two ranks do
// not.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "base/json.h"
#include "base/random/philox.h"
#include "checkpoint/tensor_source.h"
#include "huggingface/family.h"
#include "huggingface/hf_writer.h"
#include "model/canonical_tensors.h"
#include "support/golden_huggingface.h"

namespace piton::test {

// Weights of any model, no two alike: in bf16 matrices, in fp32 all others.
class RandomWeights final : public piton::TensorSource {
 public:
  explicit RandomWeights(const ModelConfig& model) : gain_(model.gains_from_one ? 0.0F : 1.0F) {
    for (const CanonicalShape& one : canonical_tensors(model)) {
      const DType dtype = one.shape.ndim() > 1 ? DType::kBF16 : DType::kF32;
      tensors_[one.name] = {.name = one.name, .dtype = dtype, .shape = one.shape};
    }
  }

  std::string where() const override { return "random weights"; }
  std::vector<CanonicalTensor> tensors(TensorKind kind) const override {
    std::vector<CanonicalTensor> all;
    if (kind != TensorKind::kWeight) return all;
    for (const auto& [name, tensor] : tensors_) all.push_back(tensor);
    return all;
  }
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) override {
    const Shape& shape = tensors_.at(name).shape;
    const bool matrix = shape.ndim() > 1;
    const std::int64_t columns = matrix ? run.extent[1] : 1;
    for (std::int64_t i = run.begin; i < run.end; ++i, dst += size_bytes(dtype)) {
      const std::int64_t row = run.start[0] + i / columns;
      const std::int64_t at = matrix ? row * shape[1] + run.start[1] + i % columns : row;
      const auto number = static_cast<std::uint32_t>(at);
      const std::uint32_t bits = philox({number, 7}, {number, hash(name), 0, 0})[0];
      float value = (static_cast<float>(bits >> 8) / (1 << 23) - 1) / 8;
      if (name.ends_with("norm.weight")) value += gain_;
      if (dtype == DType::kBF16) {
        const BFloat16 rounded = to_bfloat16(value);
        std::memcpy(dst, &rounded, sizeof rounded);
      } else {
        std::memcpy(dst, &value, sizeof value);
      }
    }
  }

 private:
  static std::uint32_t hash(const std::string& name) {
    return static_cast<std::uint32_t>(std::hash<std::string>{}(name));
  }
  float gain_;
  std::map<std::string, CanonicalTensor> tensors_;
};

// The family's golden config.json with eight heads (in four groups where the family has groups and
// no latents; never in one) and four layers.
inline void write_family_folder(const std::filesystem::path& folder, const std::string& family,
                                const std::function<void(nlohmann::ordered_json&)>& edit = {}) {
  auto config =
      read_json<nlohmann::ordered_json>(read_text_file(golden_folder(family) / "config.json"));
  const auto set = [&](std::initializer_list<const char*> names, const auto& value) {
    for (const char* name : names) {
      if (config.contains(name)) config[name] = value;
    }
  };
  // Of some families all heads are together as wide as the stream.
  const auto size = [&](const char* name) {
    return config.contains(name) && config[name].is_number() ? config[name].get<int>() : 0;
  };
  const bool fill = size("head_dim") * size("num_attention_heads") == size("hidden_size");
  set({"num_hidden_layers", "n_layer", "num_layers", "n_layers"}, 4);
  set({"hidden_size", "n_embd", "d_model", "word_embed_proj_dim"}, 64);
  set({"num_attention_heads", "n_head", "num_heads", "n_heads"}, 8);
  set({"num_key_value_heads", "num_kv_heads"}, config.contains("kv_lora_rank") ? 8 : 4);
  set({"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"}, 60);
  set({"multi_query"}, false);  // two ranks do not divide one group
  const bool states = config.contains("linear_num_key_heads");
  set({"head_dim"}, states ? 16 : fill ? 8 : 12);  // of which a quarter turns
  set({"linear_num_key_heads"}, 4);
  // Of Mamba-2 they are twice as wide as the stream.
  set({"mamba_n_heads", "mamba_num_heads", "num_heads"}, 8);
  set({"mamba_d_head", "mamba_head_dim", config.contains("num_heads") ? "head_dim" : ""}, 16);
  set({"linear_num_value_heads"}, 8);
  if (config.contains("layer_types")) {
    const auto types = config["layer_types"].get<std::vector<std::string>>();
    if (!states || types.size() == 2)
      config["layer_types"] = {types[0], types[1], types[0], types[1]};  // they alternate
  }
  if (config.contains("attention_types")) config["attention_types"] = {{{"global", "local"}, 2}};
  if (config.contains("mlp_layer_types"))
    config["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse"};
  if (edit) edit(config);
  std::filesystem::create_directories(folder);
  const HfConfig parsed(config.dump(), "config.json");
  const ModelConfig model = hf_model(parsed);
  RandomWeights weights(model);
  write_huggingface(folder, weights, {model, hf_family(parsed), config});
}

}  // namespace piton::test
