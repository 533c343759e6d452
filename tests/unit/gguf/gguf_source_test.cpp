// Models as GGUF files: those that the `gguf` package wrote hold the weights of the folders that
// they were made from (tools/oracle/gguf_files.py).
#include "gguf/gguf_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/safetensors.h"
#include "huggingface/config_keys.h"
#include "huggingface/hf_source.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::expect_equal;
using test::HfFolder;
using test::tensor_named;
using test::values_of;
using testing::HasSubstr;

// The file NAME.gguf was made from the folder of the same name, those of Qwen3-Next from one whose
// model is the same.
class GoldenGguf : public testing::TestWithParam<std::string> {
 protected:
  fs::path path() const {
    return fs::path(PITON_SOURCE_DIR) / "tests/golden/gguf" / (GetParam() + ".gguf");
  }
  std::string folder() const {
    return GetParam().starts_with("qwen3-next") ? "qwen3.5-moe" : GetParam();
  }
};

TEST_P(GoldenGguf, HoldsTheWeightsOfItsFolder) {
  GgufSource source(path());
  HfFolder original(folder());
  original.edit_config([](Json& config) {  // llama.cpp has one number for both factors of yarn
    if (!config.contains("rope_parameters")) return;
    Json& rope = config["rope_parameters"];
    if (rope.contains("mscale")) rope["mscale"] = rope["mscale_all_dim"];
  });
  HfSource folder(original.path());
  ModelConfig wanted = model_in_gguf(folder.model());
  wanted.query_scalar = source.model().query_scalar;  // llama.cpp takes that of Gemma for granted
  if (source.model().state_space && source.model().positions == PositionKind::kNone)
    wanted.max_positions = std::int64_t{1} << 20;  // which llama.cpp's converter takes
  EXPECT_EQ(model_difference(wanted, source.model()), "");
  AsGgufHolds held(folder, source);
  expect_equal(source, held);
}

TEST_P(GoldenGguf, GivesAnyPartOfATensor) {
  GgufSource source(path());
  for (const CanonicalTensor& tensor : source.tensors(TensorKind::kWeight)) {
    const std::vector<float> all = values_of(source, tensor.name, whole_run(tensor.shape));
    TensorRun run = whole_run(tensor.shape);
    run.start[0] = run.extent[0] / 3;
    run.extent[0] -= run.start[0];
    const std::int64_t columns = tensor.shape.ndim() > 1 ? tensor.shape[1] : 1;
    if (columns > 4) {
      run.start[1] = 3;
      run.extent[1] = columns - 4;
    }
    const std::int64_t width = columns > 4 ? columns - 4 : columns;
    const std::int64_t first_column = columns > 4 ? 3 : 0;
    run.begin = 1;
    run.end = run.extent.elements() - 1;
    const std::vector<float> part = values_of(source, tensor.name, run);
    for (std::int64_t i = run.begin; i < run.end; ++i) {
      const std::int64_t at = (run.start[0] + i / width) * columns + first_column + i % width;
      ASSERT_EQ(part[static_cast<std::size_t>(i - run.begin)], all[static_cast<std::size_t>(at)])
          << tensor.name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGguf,
                         testing::Values("llama", "qwen2", "gemma3", "phi3", "gpt2", "bloom",
                                         "mixtral", "gpt-neox", "nemotron", "cohere", "arcee",
                                         "ernie4.5", "deepseek-v2", "deepseek-v2-ranks",
                                         "deepseek-v3", "glm4-moe", "ernie4.5-moe", "falcon",
                                         "falcon-7b", "olmo3", "qwen3.5-heads", "qwen3.5-moe",
                                         "qwen3-next", "qwen3-next-older", "granite-moe",
                                         "granite4-mamba", "granite4-mamba-moe", "mamba2", "lfm2",
                                         "lfm2-moe", "nemotron-h"));

// Values of the matrices in such types, under the names of the Hugging Face folder.
TEST(GgufSource, ReadsTypesThatItDoesNotWriteAsValues) {
  const fs::path folder = fs::path(PITON_SOURCE_DIR) / "tests/golden/gguf";
  GgufSource source(folder / "read_only.gguf");
  const SafetensorsFile wanted(folder / "read_only.safetensors");
  const auto tensors = source.tensors(TensorKind::kWeight);
  for (const auto& [ours, theirs] : {std::pair("attention.query", "self_attn.q_proj"),
                                     {"attention.key", "self_attn.k_proj"},
                                     {"attention.value", "self_attn.v_proj"},
                                     {"mlp.up", "mlp.up_proj"}}) {
    for (int layer = 0; layer < 2; ++layer) {
      const std::string canonical = fmt::format("layers.{}.{}.weight", layer, ours);
      const CanonicalTensor& tensor = tensor_named(tensors, canonical);
      EXPECT_EQ(tensor.dtype, DType::kF32);
      EXPECT_FALSE(source.stored_format(canonical)) << canonical;
      const std::vector<float> got = values_of(source, canonical, whole_run(tensor.shape));
      const Tensor values = wanted.tensor(fmt::format("model.layers.{}.{}.weight", layer, theirs));
      ASSERT_EQ(std::ssize(got), values.elements());
      EXPECT_EQ(std::memcmp(got.data(), values.raw(), got.size() * 4), 0) << canonical;
    }
  }
}

// Blocks of 32 numbers would be those of several rows.
TEST(GgufSource, VectorsInBlocksAreRefused) {
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.1.ssm_norm.weight", "output_norm.weight"}) {
    test::GgufWorkshop files;
    EXPECT_THAT(
        files.refusal(test::golden_folder("mamba2"),
                      [&](GgufHeader& header) {
                        test::tensor_of(header, name).type = GgmlType::kQ80;
                        std::int64_t end = 0;
                        for (GgufTensor& tensor : header.tensors) {
                          tensor.offset = end;
                          end = aligned(end + tensor.bytes(), header.alignment);
                        }
                      }),
        HasSubstr(std::string(name) + " is Q8_0, wanted F32, F16 or BF16, as it is a vector"));
  }
}

}  // namespace
}  // namespace piton
