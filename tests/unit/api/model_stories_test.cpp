// stories260K, a small model that was really trained (llama2.c's format), gives the logits and the
// text that a float64 program computed from the same file. The file is not in the repository.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "api/model.h"
#include "base/files/files.h"
#include "checkpoint/safetensors.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

const fs::path kStories =
    fs::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "weights" / "stories260K";

// Seven numbers, then the tensors of all layers, one kind after another.
class StoriesFile {
 public:
  explicit StoriesFile(const fs::path& path) : bytes_(read_text_file(path)) {
    std::memcpy(header_, bytes_.data(), sizeof header_);
    at_ = sizeof header_;
  }

  // A Hugging Face folder of it. Its rotary pairs are channels 2i and 2i + 1, those of the folder i
  // and i + d/2.
  void write_folder(const fs::path& folder) {
    const auto [hidden, ffn, layers, heads, groups, vocabulary, positions] = header_;
    const std::int64_t d = hidden / heads;
    std::map<std::string, Tensor> tensors;
    tensors["model.embed_tokens.weight"] = take({vocabulary, hidden});
    const auto of_layers = [&](const char* name, const Shape& shape, std::int64_t turned = 0) {
      for (int layer = 0; layer < layers; ++layer) {
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

// The words of tok512.bin: the longest word's length, then a score, a length and the bytes of each.
std::vector<std::string> words_of(const fs::path& path) {
  const std::string bytes = read_text_file(path);
  std::vector<std::string> words;
  for (std::size_t at = 4; at + 8 <= bytes.size();) {
    std::int32_t length = 0;
    std::memcpy(&length, bytes.data() + at + 4, 4);
    words.push_back(bytes.substr(at + 8, static_cast<std::size_t>(length)));
    at += 8 + static_cast<std::size_t>(length);
  }
  return words;
}

TEST(Stories260K, GivesItsGoldenLogitsAndText) {
  if (!fs::exists(kStories)) GTEST_SKIP() << "no model at " << kStories;
  const TempFolder folder;
  StoriesFile(kStories / "stories260K.bin").write_folder(folder.path());
  const std::vector<std::string> words = words_of(kStories / "tok512.bin");
  const auto golden = nlohmann::json::parse(read_text_file(kStories / "weights_golden_260K.json"));
  test::HostMachine machine;
  const auto model = Model::load(machine.machine, folder.path(), {});
  const auto& cases = golden["models"]["stories260K"]["cases"];
  EXPECT_EQ(cases.size(), 4U);
  for (const auto& one : cases) {
    SCOPED_TRACE(one["prompt"].get<std::string>());
    const std::vector<std::int32_t> prompt = one["prompt_ids"];
    const std::vector<double> wanted = one["last_logits"];
    const std::vector<double> all = test::values(model->logits(prompt));
    ASSERT_EQ(all.size(), prompt.size() * wanted.size());
    const double* last = all.data() + (prompt.size() - 1) * wanted.size();
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(last[i], wanted[i], 1e-4) << i;

    const std::vector<std::int32_t> ids = one["greedy_ids"];
    std::vector<std::int32_t> got = prompt;
    for (const GeneratedToken& token : model->generate(
             prompt, {.max_new_tokens = std::ssize(ids) - std::ssize(prompt), .greedy = true},
             [](const GeneratedToken&) { return true; })) {
      got.push_back(token.id);
    }
    EXPECT_EQ(got, ids);
    std::string text;
    for (std::size_t i = 1; i < got.size() && got[i] > 2; ++i)  // from one <s> to the next
      text += words.at(static_cast<std::size_t>(got[i]));
    EXPECT_EQ(text, one["greedy_text"].get<std::string>());
  }
}

}  // namespace
}  // namespace piton
