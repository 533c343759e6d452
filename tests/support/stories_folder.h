// stories260K, a small Llama that was really trained (llama2.c's format), as a Hugging Face folder.
// The file is not in the repository.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "support/tensors.h"

namespace piton::test {

inline std::filesystem::path stories_path() {
  return std::filesystem::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "weights" /
         "stories260K";
}

// Seven numbers, then the tensors of all layers, one kind after another.
class StoriesFile {
 public:
  explicit StoriesFile(const std::filesystem::path& path) : bytes_(read_text_file(path)) {
    std::memcpy(header_, bytes_.data(), sizeof header_);
    at_ = sizeof header_;
  }

  // A Hugging Face folder of it. Its rotary pairs are channels 2i and 2i + 1, those of the folder i
  // and i + d/2.
  void write_folder(const std::filesystem::path& folder) {
    const auto [hidden, ffn, layers, heads, groups, vocabulary, positions] = header_;
    const std::int64_t d = hidden / heads;
    std::map<std::string, Tensor> tensors;
    tensors["model.embed_tokens.weight"] = take({vocabulary, hidden});
    const auto of_layers = [&, count = layers](const char* name, const Shape& shape,
                                               std::int64_t turned = 0) {
      for (int layer = 0; layer < count; ++layer) {
        const Tensor one = take(shape);
        tensors[fmt::format("model.layers.{}.{}.weight", layer, name)] =
            turned > 0 ? halves(one, turned, d) : one;
      }
    };
    of_layers("input_layernorm", {hidden});
    of_layers("self_attn.q_proj", {hidden, hidden}, heads);
    of_layers("self_attn.k_proj", {groups * d, hidden}, groups);
    of_layers("self_attn.v_proj", {groups * d, hidden});
    of_layers("self_attn.o_proj", {hidden, hidden});
    of_layers("post_attention_layernorm", {hidden});
    of_layers("mlp.gate_proj", {ffn, hidden});
    of_layers("mlp.down_proj", {hidden, ffn});
    of_layers("mlp.up_proj", {ffn, hidden});
    tensors["model.norm.weight"] = take({hidden});
    write_safetensors(folder / "model.safetensors", tensors);
    write_text_file(folder / "config.json", nlohmann::json{{"architectures", {"LlamaForCausalLM"}},
                                                           {"model_type", "llama"},
                                                           {"hidden_size", hidden},
                                                           {"intermediate_size", ffn},
                                                           {"num_hidden_layers", layers},
                                                           {"num_attention_heads", heads},
                                                           {"num_key_value_heads", groups},
                                                           {"vocab_size", vocabulary},
                                                           {"max_position_embeddings", positions},
                                                           {"rms_norm_eps", 1e-5},
                                                           {"tie_word_embeddings", true}}
                                                .dump());
  }

 private:
  Tensor take(const Shape& shape) {
    const Tensor tensor = host_tensor(DType::kF32, shape);
    std::memcpy(tensor.raw(), bytes_.data() + at_, static_cast<std::size_t>(tensor.bytes()));
    at_ += static_cast<std::size_t>(tensor.bytes());
    return tensor;
  }
  static Tensor halves(const Tensor& from, std::int64_t heads, std::int64_t d) {
    const Tensor to = host_tensor(DType::kF32, from.shape());
    const std::int64_t columns = from.dim(1);
    for (std::int64_t row = 0; row < heads * d; ++row) {
      const std::int64_t channel = row % d;
      const std::int64_t target = row - channel + channel / 2 + channel % 2 * (d / 2);
      std::memcpy(to.data<float>() + target * columns, from.data<float>() + row * columns,
                  static_cast<std::size_t>(columns) * sizeof(float));
    }
    return to;
  }

  std::string bytes_;
  std::int32_t header_[7] = {};
  std::size_t at_ = 0;
};

}  // namespace piton::test
