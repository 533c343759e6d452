// Models as GGUF files: those of Piton are read as they were written.
#include "gguf/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "huggingface/config_keys.h"
#include "huggingface/family.h"
#include "support/sampled.h"
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

// Writes a golden folder as a GGUF file and opens that.
class WrittenGguf : public testing::Test {
 protected:
  fs::path write(const fs::path& folder, std::optional<GgmlType> type = {}) {
    return files_.write(folder, type);
  }

  test::GgufWorkshop files_;
};

TEST_F(WrittenGguf, OfEveryTypeIsReadAsItWasWritten) {
  const std::vector<std::string> models = {
      "gpt2",       "llama",      "llama3",       "qwen2",
      "qwen3",      "bloom",      "phi3",         "stablelm",
      "internlm",   "internlm2",  "baichuan",     "mistral",
      "mixtral",    "granite",    "granite4",     "granite-moe",
      "olmo2",      "phi",        "gpt-neox",     "cohere",
      "arcee",      "ernie4.5",   "starcoder2",   "minicpm",
      "minicpm4",   "falcon",     "falcon-7b",    "olmo3",
      "internlm3",  "glm4-moe",   "ernie4.5-moe", "deepseek-v2-ranks",
      "cohere2",    "hunyuan",    "ministral3",   "exaone",
      "olmo",       "jais2",      "gpt-bigcode",  "youtu",
      "minimax-m2", "hunyuan-moe"};
  const std::vector<std::optional<GgmlType>> types = {std::nullopt,    GgmlType::kF16,
                                                      GgmlType::kBF16, GgmlType::kQ80,
                                                      GgmlType::kQ40,  GgmlType::kQ4K};
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::optional<GgmlType> type = types[i];
    for (const std::string& name : test::sampled(models, i == 0 ? 1 : 5, i)) {
      SCOPED_TRACE(fmt::format("{} {}", name, type ? piton::name(*type) : "as it is"));
      GgufSource source(write(test::golden_folder(name), type));
      HfSource folder(test::golden_folder(name));
      EXPECT_EQ(model_difference(model_in_gguf(folder.model()), source.model()), "");
      AsGgufHolds held(folder, source);
      expect_equal(source, held);
      if (!type && !source.model().gains_from_one) expect_equal(source, folder);
    }
  }
}

// llama.cpp fixes which layers of SmolLM3 have no positions, and that heads of GLM-4 fill the
// width.
TEST_F(WrittenGguf, OfPublishedFormsIsReadAsItWasWritten) {
  EXPECT_THAT(message_of(Fault::kData, [&] { write(test::golden_folder("smollm3")); }),
              HasSubstr("no architecture of llama.cpp holds this model"));
  HfFolder folder("smollm3");
  folder.edit_config([](Json& config) { config["no_rope_layers"] = {1, 1, 1, 0}; });
  GgufSource source(write(folder.path()));
  EXPECT_EQ(source.architecture().name, "smollm3");
  HfSource original(folder.path());
  EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
  expect_equal(source, original);

  Json config = Json::parse(read_text_file(test::golden_folder("glm4") / "config.json"));
  const auto described = [&] {
    return describe_gguf(hf_model(HfConfig(config.dump(), "config.json")), "glm4", "the model");
  };
  EXPECT_THAT(message_of(Fault::kData, described), HasSubstr("attention.key_length"));
  config["head_dim"] = 8;
  const GgufDescription glm4 = described();
  EXPECT_EQ(glm4.architecture, "glm4");
  EXPECT_THAT(glm4.shapes.at("blk.0.ffn_up.weight"), testing::ElementsAre(2 * 54, 32));
  EXPECT_TRUE(glm4.shapes.contains("blk.1.post_ffw_norm.weight"));
}

// llama.cpp's heads of Nemotron are together as wide as the residual stream.
TEST_F(WrittenGguf, OfNemotronIsReadAsItWasWritten) {
  HfFolder folder("nemotron");
  folder.edit_config([](Json& config) { config["head_dim"] = 8; });
  for (auto& [name, tensor] : folder.tensors) {
    if (name.find("self_attn") == std::string::npos) continue;
    const bool output = name.find("o_proj") != std::string::npos;
    const std::int64_t rows = output ? tensor.dim(0) : tensor.dim(0) / 12 * 8;
    const std::int64_t columns = output ? tensor.dim(1) / 12 * 8 : tensor.dim(1);
    const Tensor narrow = host_tensor(DType::kF32, {rows, columns});
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(tensor.data<float>() + row * tensor.dim(1), columns,
                  narrow.data<float>() + row * columns);
    }
    tensor = narrow;
  }
  folder.write();
  for (const std::optional<GgmlType> type : {std::optional<GgmlType>{}, {GgmlType::kQ80}}) {
    GgufSource source(write(folder.path(), type));
    EXPECT_EQ(source.architecture().name, "nemotron");
    HfSource original(folder.path());
    AsGgufHolds held(original, source);
    expect_equal(source, held);
  }
}

// llama.cpp fixes the bound of the gates of gpt-oss.
TEST_F(WrittenGguf, OfGptOssIsReadAsItWasWritten) {
  EXPECT_THAT(message_of(Fault::kData, [&] { write(test::golden_folder("gpt-oss")); }),
              HasSubstr("no architecture of llama.cpp holds this model (gpt_oss): as \"gpt-oss\": "
                        "there is no word for the bound of its gates"));
  HfFolder folder("gpt-oss");
  folder.edit_config([](Json& config) { config["swiglu_limit"] = 7.0; });
  for (const std::optional<GgmlType> type : {std::optional<GgmlType>{}, {GgmlType::kQ80}}) {
    GgufSource source(write(folder.path(), type));
    EXPECT_EQ(source.architecture().name, "gpt-oss");
    HfSource original(folder.path());
    const GgufDescription said = describe_gguf(original.model(), "gpt_oss", "the model");
    EXPECT_TRUE(said.shapes.contains("blk.1.post_attention_norm.weight"));
    EXPECT_THAT(said.shapes.at("blk.0.attn_sinks.weight"), testing::ElementsAre(4));
    EXPECT_THAT(said.shapes.at("blk.0.ffn_gate_exps.bias"), testing::ElementsAre(5, 18));
    EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
    AsGgufHolds held(original, source);
    expect_equal(source, held);
    if (!type) expect_equal(source, original);
  }
}

TEST_F(WrittenGguf, HasTheTypesThatLlamaCppExpects) {
  GgufSource source(write(test::golden_folder("llama"), GgmlType::kQ40));
  EXPECT_EQ(source.stored_type("layers.0.attention.query.weight"), GgmlType::kQ40);
  EXPECT_EQ(source.stored_type("head.weight"), GgmlType::kQ80);
  EXPECT_EQ(source.stored_type("embedding.token.weight"), GgmlType::kQ40);
  EXPECT_EQ(source.stored_type("final_norm.weight"), GgmlType::kF32);
  // Rows of 53 are no whole blocks.
  EXPECT_EQ(source.stored_type("layers.0.mlp.down.weight"), GgmlType::kF16);
  EXPECT_THAT(files_.written().not_in_blocks,
              testing::ElementsAre("blk.0.ffn_down.weight", "blk.1.ffn_down.weight"));
  EXPECT_EQ(source.architecture().name, "llama");
  // No rows of the model are whole blocks of 256.
  GgufSource short_rows(write(test::golden_folder("llama"), GgmlType::kQ4K));
  EXPECT_EQ(short_rows.stored_type("layers.0.attention.query.weight"), GgmlType::kQ80);
  EXPECT_THAT(files_.written().in_short_blocks, testing::Contains("output.weight"));
  EXPECT_EQ(short_rows.stored_type("layers.0.mlp.down.weight"), GgmlType::kF16);
}

TEST_F(WrittenGguf, TurnsQueriesAndKeysOfLlamaIntoPairs) {
  GgufSource source(write(test::golden_folder("llama")));
  const GgufHeader& header = source.file().header();
  const auto tensor = std::ranges::find(header.tensors, "blk.0.attn_q.weight", &GgufTensor::name);
  ASSERT_NE(tensor, header.tensors.end());
  std::vector<float> stored(static_cast<std::size_t>(tensor->elements()));
  source.file().file().read_at(source.file().offset(*tensor),
                               std::as_writable_bytes(std::span(stored)));
  const std::int64_t columns = tensor->shape[1];
  const auto tensors = source.tensors(TensorKind::kWeight);
  const CanonicalTensor& query = tensor_named(tensors, "layers.0.attention.query.weight");
  const std::vector<float> canonical = values_of(source, query.name, whole_run(query.shape));
  // Heads of 8: rows 0, 4, 1, 5, ... of the halves.
  const std::int64_t wanted[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12};
  for (std::int64_t row = 0; row < 10; ++row) {
    EXPECT_EQ(std::memcmp(stored.data() + row * columns, canonical.data() + wanted[row] * columns,
                          static_cast<std::size_t>(columns) * 4),
              0)
        << row;
  }
}

TEST_F(WrittenGguf, OfGemmaHoldsGainsAndComesBack) {
  for (const char* name : {"gemma2", "gemma3"}) {
    HfFolder folder(name);
    folder.edit_config(
        [](nlohmann::ordered_json& config) { config["query_pre_attn_scalar"] = 12; });
    GgufSource source(write(folder.path()));
    EXPECT_EQ(source.architecture().name, name);
    HfSource original(folder.path());
    AsGgufHolds held(original, source);
    expect_equal(source, held);
    EXPECT_EQ(source.place("layers.0.attention.end_norm.weight").transform, GgufTransform::kGain);
    EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
    if (source.model().head_norms) {
      EXPECT_EQ(source.place("layers.0.attention.query_norm.weight").transform,
                GgufTransform::kGain);
    }
  }
}

// llama.cpp takes a cap that is not said for that of the published models in Gemma 2, for none in
// Gemma 3.
TEST_F(WrittenGguf, OfGemmaSaysTheCapsThatItHas) {
  const auto described = [](const char* name, const Json& attention, const Json& logits) {
    Json config = Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
    config["query_pre_attn_scalar"] = 12;
    config["attn_logit_softcapping"] = attention;
    config["final_logit_softcapping"] = logits;
    const ModelConfig model = hf_model(HfConfig(config.dump(), "config.json"));
    return describe_gguf(model, name, "the model");
  };
  const auto cap = [](const GgufDescription& description, const std::string& key) {
    const auto found = std::ranges::find(description.entries, description.architecture + "." + key,
                                         &GgufEntry::key);
    return found == description.entries.end() ? std::nullopt : std::optional(found->value.number());
  };
  const GgufDescription gemma3 = described("gemma3", nullptr, nullptr);
  EXPECT_EQ(cap(gemma3, "attn_logit_softcapping"), std::nullopt);
  EXPECT_EQ(cap(gemma3, "final_logit_softcapping"), std::nullopt);
  EXPECT_EQ(cap(described("gemma3", nullptr, 0.5), "final_logit_softcapping"), 0.5);
  const GgufDescription gemma2 = described("gemma2", 0.25, 0.5);
  EXPECT_EQ(cap(gemma2, "attn_logit_softcapping"), 0.25);
  EXPECT_EQ(cap(gemma2, "final_logit_softcapping"), 0.5);
  for (const auto& [attention, logits] : {std::pair<Json, Json>{nullptr, 0.5}, {0.5, nullptr}}) {
    EXPECT_THAT(message_of(Fault::kData, [&] { described("gemma2", attention, logits); }),
                HasSubstr("as \"gemma2\": there is no word for"));
  }
}

TEST_F(WrittenGguf, SaysLlama3sScalingAndGivesItBack) {
  const fs::path path = write(test::golden_folder("llama3"));
  const GgufSource source(path);
  const RotaryScaling& scaling = source.model().rotary_scaling;
  EXPECT_EQ(scaling.kind, RotaryScaling::Kind::kLlama3);
  EXPECT_EQ(scaling.original_positions, 32);
  EXPECT_EQ(scaling.factor, 8);
  EXPECT_TRUE(source.model().tied);
}

TEST_F(WrittenGguf, CopiesATiedHeadWhereLlamaCppWantsOne) {
  for (const char* name : {"stablelm", "internlm2", "olmo2"}) {
    SCOPED_TRACE(name);
    HfFolder folder(name);
    folder.tensors.erase("lm_head.weight");
    folder.tensors.erase("output.weight");
    folder.edit_config(
        [](nlohmann::ordered_json& config) { config["tie_word_embeddings"] = true; });
    folder.write();
    const GgufSource source(write(folder.path()));
    EXPECT_TRUE(source.model().tied);
    EXPECT_NE(std::ranges::find(source.file().header().tensors, "output.weight", &GgufTensor::name),
              source.file().header().tensors.end());
  }
}

TEST_F(WrittenGguf, RefusesByNameWhatLlamaCppDoesNotHave) {
  const auto refusal = [&](const std::string& name,
                           const std::function<void(nlohmann::ordered_json&)>& edit) {
    HfFolder folder(name);
    folder.edit_config(edit);
    return message_of(Fault::kData, [&] { write(folder.path()); });
  };
  EXPECT_THAT(
      refusal("gemma2", [](auto&) {}),
      HasSubstr("no architecture of llama.cpp holds this model (gemma): as \"gemma2\": there "
                "is no word for the scale of its scores; convert"));
  EXPECT_THAT(refusal("baichuan-13b", [](auto&) {}), HasSubstr("its kind of positions"));
  ModelConfig baichuan = HfSource(test::golden_folder("baichuan2")).model();
  const auto described = [&] { describe_gguf(baichuan, "baichuan", "x"); };
  EXPECT_THAT(message_of(Fault::kData, described),
              HasSubstr("as \"baichuan\": llama.cpp has rotary positions in models of 32 layers "
                        "alone there"));
  baichuan.layers = 32;
  EXPECT_THAT(message_of(Fault::kData, described), HasSubstr("a normalized head"));
  EXPECT_THAT(refusal("nemotron", [](auto&) {}),
              HasSubstr("as \"nemotron\": llama.cpp has heads that are together as wide as the "
                        "stream there"));
  EXPECT_THAT(refusal("gpt2", [](auto& config) { config["activation_function"] = "gelu"; }),
              HasSubstr("as \"gpt2\": there is no word for its activation"));
  EXPECT_THAT(refusal("qwen3", [](auto& config) { config["hidden_act"] = "gelu"; }),
              HasSubstr("its activation"));
}

// The head of a file with an edit, and its data.
void rewrite(const fs::path& path, const std::function<void(GgufHeader&)>& edit) {
  GgufFile file(path);
  GgufHeader header = file.header();
  std::string data(static_cast<std::size_t>(file.file().size_bytes() - header.data_begin), '\0');
  file.file().read_at(header.data_begin, std::as_writable_bytes(std::span(data)));
  edit(header);
  write_text_file(path, make_gguf_header(header) + data);
}

TEST_F(WrittenGguf, WhoseKeysContradictItsTensorsIsRefused) {
  const auto refusal = [&](const std::function<void(GgufHeader&)>& edit) {
    const fs::path path = write(test::golden_folder("llama"));
    rewrite(path, edit);
    return message_of(Fault::kData, [&] { GgufSource source(path); });
  };
  const auto set = [](GgufHeader& header, const std::string& key, GgufValue value) {
    std::ranges::find(header.entries, key, &GgufEntry::key)->value = std::move(value);
  };
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.block_count", GgufValue::u32(3)); }),
              HasSubstr("missing tensors (9): blk.2.attn_k.weight"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.block_count", GgufValue::u32(1)); }),
              HasSubstr("tensors that are not of a model of architecture llama (9)"));
  EXPECT_THAT(
      refusal([&](GgufHeader& h) { set(h, "llama.block_count", GgufValue::u32(2'000'000'000)); }),
      HasSubstr("llama.block_count: got 2000000000, wanted no more blocks than there are tensors"));
  EXPECT_THAT(refusal([&](GgufHeader& h) { set(h, "llama.embedding_length", GgufValue::u32(64)); }),
              HasSubstr("blk.0.attn_k.weight is [16, 32], the keys say [16, 64]"));
  EXPECT_THAT(
      refusal([&](GgufHeader& h) { set(h, "llama.embedding_length", GgufValue::string("x")); }),
      HasSubstr("llama.embedding_length: got \"x\", wanted a positive integer"));
  const fs::path none = write(test::golden_folder("llama"));
  rewrite(none, [](GgufHeader& h) {
    h.entries.push_back({"llama.expert_count", GgufValue::u32(0)});
  });
  EXPECT_NO_THROW(GgufSource{none});
  EXPECT_THAT(
      refusal([&](GgufHeader& h) { set(h, "general.architecture", GgufValue::string("mamba")); }),
      HasSubstr("general.architecture: got \"mamba\", wanted llama, qwen2"));
  EXPECT_THAT(
      refusal([&](GgufHeader& h) { set(h, "llama.rope.dimension_count", GgufValue::u32(4)); }),
      HasSubstr("llama.rope.dimension_count: got 4, wanted all channels of a head"));
  EXPECT_THAT(refusal([&](GgufHeader& h) {
                h.entries.push_back({"split.count", GgufValue::u32(2)});
              }),
              HasSubstr("is one of 2 parts of a model"));
}

// So Phi-3 says that it has none.
TEST_F(WrittenGguf, WithAWindowOf0HasNone) {
  HfFolder folder("phi3");
  folder.edit_config([](nlohmann::ordered_json& config) { config["sliding_window"] = nullptr; });
  const GgufSource source(write(folder.path()));
  const auto& entries = source.file().header().entries;
  const auto window = std::ranges::find(entries, "phi3.attention.sliding_window", &GgufEntry::key);
  ASSERT_NE(window, entries.end());
  EXPECT_EQ(window->value.integer(), 0);
  EXPECT_FALSE(source.model().window_before);
}

}  // namespace
}  // namespace piton
