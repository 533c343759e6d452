// Hugging Face folders as sources of canonical tensors: the right elements of fused and transposed
// weights, and an error that names the problem for every kind of damaged download.
#include "huggingface/hf_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/json.h"
#include "model/canonical_tensors.h"
#include "support/errors.h"
#include "support/tensors.h"
#include "unit/huggingface/hf_folder.h"
#include "unit/huggingface/whole_tensor.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HfFolder;
using test::whole;
using testing::HasSubstr;

TEST(HfSource, HasTheCanonicalTensorsOfEveryGoldenModel) {
  for (const std::string& name : test::golden_folders()) {
    const HfSource source(test::golden_folder(name));
    std::map<std::string, Shape> wanted;
    for (const CanonicalShape& one : canonical_tensors(source.model()))
      wanted[one.name] = one.shape;
    const std::vector<CanonicalTensor> got = source.tensors(TensorKind::kWeight);
    EXPECT_EQ(got.size(), wanted.size()) << name;
    for (const CanonicalTensor& one : got) EXPECT_EQ(one.shape, wanted[one.name]) << one.name;
    EXPECT_TRUE(source.tensors(TensorKind::kOptimizer).empty());
    EXPECT_TRUE(source.notes().empty());
  }
}

TEST(HfSource, TurnsAndCutsTheWeightsOfGpt2) {
  HfFolder folder("gpt2");
  HfSource source(folder.path());
  const std::int64_t h = source.model().hidden;
  const Tensor packed = folder.tensors.at("transformer.h.1.attn.c_attn.weight");  // [h, 3 h]
  const Tensor bias = folder.tensors.at("transformer.h.1.attn.c_attn.bias");
  int part = 0;
  for (const char* name : {"query", "key", "value"}) {
    const std::string at = fmt::format("layers.1.attention.{}", name);
    const std::vector<double> weight = whole(source, at + ".weight", {h, h});
    const std::vector<double> biases = whole(source, at + ".bias", {h});
    for (std::int64_t out = 0; out < h; ++out) {
      EXPECT_EQ(biases[static_cast<std::size_t>(out)], test::value_at(bias, part * h + out));
      for (std::int64_t in = 0; in < h; ++in) {
        ASSERT_EQ(weight[static_cast<std::size_t>(out * h + in)],
                  test::value_at(packed, in * 3 * h + part * h + out));
      }
    }
    ++part;
  }
}

TEST(HfSource, HasAMatrixForEachExpert) {
  const auto same = [](const char* name, const std::string& canonical, const std::string& theirs) {
    HfFolder folder(name);
    HfSource source(folder.path());
    const Tensor wanted = folder.tensors.at(theirs);
    EXPECT_EQ(whole(source, canonical, wanted.shape()), test::values(wanted)) << canonical;
  };
  const std::string mixtral = "model.layers.1.block_sparse_moe.";
  same("mixtral", "layers.1.mlp.router.weight", mixtral + "gate.weight");
  same("mixtral", "layers.1.mlp.experts.3.gate.weight", mixtral + "experts.3.w1.weight");
  same("mixtral", "layers.1.mlp.experts.3.up.weight", mixtral + "experts.3.w3.weight");
  same("mixtral", "layers.1.mlp.experts.4.down.weight", mixtral + "experts.4.w2.weight");
  const std::string qwen = "model.layers.1.mlp.";
  same("qwen3-moe", "layers.1.mlp.router.weight", qwen + "gate.weight");
  same("qwen3-moe", "layers.1.mlp.experts.0.gate.weight", qwen + "experts.0.gate_proj.weight");
  same("qwen3-moe", "layers.1.mlp.experts.5.up.weight", qwen + "experts.5.up_proj.weight");
  same("qwen3-moe", "layers.1.mlp.experts.5.down.weight", qwen + "experts.5.down_proj.weight");
  // Their number, before as many names are made.
  HfFolder folder("mixtral");
  folder.edit_config([](auto& config) { config["num_local_experts"] = 65536; });
  EXPECT_THAT(message_of(Fault::kData, [&] { HfSource(folder.path()); }),
              HasSubstr("a model of 2 layers with 65536 experts each, and the files hold 47"));
}

TEST(HfSource, GivesAnyRunAsItsPartOfTheWhole) {
  for (const char* name : {"gpt2", "llama", "internlm2", "bloom", "phi3"}) {
    HfSource source(test::golden_folder(name));
    std::mt19937 random(5);
    const auto below = [&](std::int64_t count) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    };
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) {
      const std::vector<double> all = whole(source, one.name, one.shape);
      for (int round = 0; round < 8; ++round) {
        TensorRun run = whole_run(one.shape);
        for (int dim = 0; dim < one.shape.ndim(); ++dim) {
          run.start[dim] = below(one.shape[dim]);
          run.extent[dim] = 1 + below(one.shape[dim] - run.start[dim]);
        }
        run.begin = below(run.extent.elements());
        run.end = run.begin + 1 + below(run.extent.elements() - run.begin);
        std::vector<double> got(static_cast<std::size_t>(run.size()));
        source.read(one.name, run, DType::kF64, reinterpret_cast<std::byte*>(got.data()));
        const std::int64_t columns = one.shape.ndim() > 1 ? run.extent[1] : 1;
        const std::int64_t row = one.shape.ndim() > 1 ? one.shape[1] : 1;
        const std::int64_t first = one.shape.ndim() > 1 ? run.start[1] : 0;
        for (std::int64_t i = 0; i < run.size(); ++i) {
          const std::int64_t at = run.begin + i;
          const std::int64_t index = (run.start[0] + at / columns) * row + first + at % columns;
          ASSERT_EQ(got[static_cast<std::size_t>(i)], all[static_cast<std::size_t>(index)])
              << one.name;
        }
      }
    }
  }
}

TEST(HfSource, DecidesFromTheDataWhetherTheHeadIsTied) {
  HfFolder folder("llama");
  EXPECT_FALSE(HfSource(folder.path()).model().tied);
  // A copy of the table, whatever config.json says.
  const Tensor head = folder.tensors.at("lm_head.weight");
  folder.tensors["lm_head.weight"] = folder.tensors.at("model.embed_tokens.weight");
  folder.write();
  EXPECT_TRUE(HfSource(folder.path()).model().tied);
  // Another table, though config.json says that it is tied: kept, and said.
  folder.tensors["lm_head.weight"] = head;
  folder.write();
  folder.edit_config([](auto& config) { config["tie_word_embeddings"] = true; });
  const HfSource other(folder.path());
  EXPECT_FALSE(other.model().tied);
  EXPECT_THAT(other.notes(), testing::ElementsAre(HasSubstr("the head is kept")));
  // None.
  folder.tensors.erase("lm_head.weight");
  folder.write();
  EXPECT_TRUE(HfSource(folder.path()).model().tied);
  folder.edit_config([](auto& config) { config["tie_word_embeddings"] = false; });
  EXPECT_THAT(message_of(Fault::kData, [&] { HfSource(folder.path()); }),
              HasSubstr("missing tensors (1): lm_head.weight"));
}

TEST(HfSource, LeavesOutRowsThatPadTheVocabulary) {
  HfFolder folder("llama");
  HfSource before(folder.path());
  const std::vector<double> table =
      whole(before, "embedding.token.weight", {before.model().vocabulary, 32});
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const Tensor padded = host_tensor(DType::kF32, {144, 32});
    std::memcpy(padded.raw(), folder.tensors.at(name).raw(),
                static_cast<std::size_t>(folder.tensors.at(name).bytes()));
    folder.tensors[name] = padded;
  }
  folder.write();
  HfSource after(folder.path());
  EXPECT_EQ(after.model().vocabulary, 131);
  EXPECT_EQ(whole(after, "embedding.token.weight", {131, 32}), table);
}

TEST(HfSource, ReadsShardsAsOneFile) {
  HfFolder folder("qwen3");
  HfSource one(folder.path());
  std::map<std::string, std::vector<double>> values;
  for (const CanonicalTensor& tensor : one.tensors(TensorKind::kWeight))
    values[tensor.name] = whole(one, tensor.name, tensor.shape);
  folder.write_shards(3);
  HfSource three(folder.path());
  EXPECT_EQ(three.files().names().size(), 3U);
  for (const auto& [name, wanted] : values) {
    for (const CanonicalTensor& tensor : three.tensors(TensorKind::kWeight)) {
      if (tensor.name == name) {
        EXPECT_EQ(whole(three, name, tensor.shape), wanted) << name;
      }
    }
  }
}

std::string refusal(const fs::path& folder) {
  return message_of(Fault::kData, [&] { HfSource source(folder); });
}

TEST(HfDownload, ThatIsNotWholeIsNamed) {
  HfFolder folder("llama");
  folder.write_shards(3);
  const fs::path second = folder.path() / HfFolder::shard_name(1, 3);
  const std::string whole_file = read_text_file(second);
  // Missing.
  fs::remove(second);
  EXPECT_THAT(refusal(folder.path()),
              HasSubstr("1 of 3 shards are missing: model-00002-of-00003.safetensors; download"));
  // Short: in its data, in its header, and empty.
  for (const std::size_t bytes : {whole_file.size() - 1, std::size_t{20}, std::size_t{0}}) {
    write_text_file(second, whole_file.substr(0, bytes));
    EXPECT_THAT(refusal(folder.path()), HasSubstr("model-00002-of-00003.safetensors: not a valid"));
  }
  // A page of the hub in the place of the file.
  write_text_file(second, "<!doctype html>Invalid username or password");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("model-00002-of-00003.safetensors: not a valid"));
  write_text_file(second, whole_file);
  EXPECT_NO_THROW(HfSource{folder.path()});
  // The shard of another download.
  fs::copy_file(folder.path() / HfFolder::shard_name(0, 3), second,
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(folder.path()), HasSubstr("is in model-00001-of-00003.safetensors and in "));
  const std::map<std::string, Tensor> other{{"x", host_tensor(DType::kF32, {2})}};
  write_safetensors(second, other);
  EXPECT_THAT(refusal(folder.path()),
              HasSubstr("model-00002-of-00003.safetensors: it lacks model."));
}

TEST(HfDownload, WithAnIndexThatIsWrongIsNamed) {
  HfFolder folder("llama");
  folder.write_shards(2);
  const fs::path index = folder.path() / "model.safetensors.index.json";
  const std::string good = read_text_file(index);
  const auto edited = [&](const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json document = read_json<nlohmann::json>(good);
    edit(document["weight_map"]);
    write_text_file(index, document.dump());
    return refusal(folder.path());
  };
  for (const char* name : {"../model.safetensors", "/etc/passwd", "a/b", "..", ""}) {
    EXPECT_THAT(edited([&](auto& map) { map["lm_head.weight"] = name; }),
                HasSubstr("lm_head.weight: got \""));
  }
  EXPECT_THAT(edited([](auto& map) { map["lm_head.weight"] = 7; }), HasSubstr("got 7, wanted"));
  EXPECT_THAT(edited([](auto& map) { map.erase("lm_head.weight"); }),
              HasSubstr("holds lm_head.weight, which model.safetensors.index.json does not name"));
  EXPECT_THAT(edited([](auto& map) { map["more"] = HfFolder::shard_name(0, 2); }),
              HasSubstr("it lacks more, which"));
  EXPECT_THAT(edited([](auto& map) { map.clear(); }), HasSubstr("weight_map: got no tensors"));
  for (const std::string& text : {good.substr(0, good.size() / 2), std::string("[]"),
                                  std::string("{\"weight_map\": 1}"), std::string()}) {
    write_text_file(index, text);
    EXPECT_THAT(refusal(folder.path()), HasSubstr("index.json: got no \"weight_map\""));
  }
  write_text_file(index, std::string(100'000, '['));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("index.json"));
  fs::remove(index);
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no weights: wanted model.safetensors or "
                                                "model.safetensors.index.json; got model-0000"));
}

// GLM-4.5 has a layer more than num_hidden_layers says, which predicts later tokens.
TEST(HfSource, LeavesOutLayersThatPredictLaterTokens) {
  HfFolder folder("glm4-moe");
  folder.tensors["model.layers.2.eh_proj.weight"] = host_tensor(DType::kF32, {32, 64});
  folder.tensors["model.layers.2.mlp.gate.weight"] = host_tensor(DType::kF32, {8, 32});
  folder.write();
  EXPECT_THAT(refusal(folder.path()),
              HasSubstr("tensors that are not of a model of type glm4_moe"));
  folder.edit_config([](auto& config) { config["num_nextn_predict_layers"] = 1; });
  const HfSource source(folder.path());
  ASSERT_EQ(source.notes().size(), 1U);
  EXPECT_THAT(
      source.notes()[0],
      HasSubstr(
          "num_nextn_predict_layers: the layers after the 2 of the model predict later tokens and "
          "are left out, as by Transformers"));
  EXPECT_EQ(source.tensors(TensorKind::kWeight).size(), canonical_tensors(source.model()).size());
}

// Of DeepSeek-V3 and GLM-4.5: a layer like the last one, and what it has in addition.
TEST(HfSource, ReadsLayersThatPredictLaterTokens) {
  for (const char* family : {"deepseek-v3", "glm4-moe"}) {
    SCOPED_TRACE(family);
    HfFolder folder(family);
    const std::map<std::string, Tensor> tensors = folder.tensors;
    for (const auto& [name, tensor] : tensors) {
      constexpr std::string_view kLast = "model.layers.1.";
      if (name.starts_with(kLast))
        folder.tensors["model.layers.2." + name.substr(kLast.size())] = tensor;
    }
    const auto own = [&](const char* name, const Shape& shape, float value) {
      const Tensor tensor = host_tensor(DType::kF32, shape);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.data<float>()[i] = value + static_cast<float>(i);
      folder.tensors[std::string("model.layers.2.") + name] = tensor;
    };
    own("enorm.weight", {32}, 0.5F);
    own("hnorm.weight", {32}, 1.5F);
    own("eh_proj.weight", {32, 64}, 2.5F);
    own("shared_head.norm.weight", {32}, 3.5F);
    // Copies of what the model shares.
    folder.tensors["model.layers.2.embed_tokens.weight"] = tensors.at("model.embed_tokens.weight");
    folder.tensors["model.layers.2.shared_head.head.weight"] = tensors.at("lm_head.weight");
    folder.edit_config([](auto& config) { config["num_nextn_predict_layers"] = 1; });
    folder.write();
    HfSource source(folder.path());
    EXPECT_EQ(source.model().mtp_layers, 1);
    EXPECT_TRUE(source.notes().empty());
    EXPECT_EQ(source.tensors(TensorKind::kWeight).size(), canonical_tensors(source.model()).size());
    const auto read = [&](const std::string& name) {
      std::vector<float> values(32);
      source.read(name, whole_run(Shape{32}), DType::kF32,
                  reinterpret_cast<std::byte*>(values.data()));
      return values;
    };
    EXPECT_EQ(read("mtp.layers.0.token_norm.weight")[1], 1.5);
    EXPECT_EQ(read("mtp.layers.0.hidden_norm.weight")[1], 2.5);
    EXPECT_EQ(read("mtp.layers.0.final_norm.weight")[1], 4.5);
    EXPECT_EQ(read("mtp.layers.0.mlp_norm.weight"), read("layers.1.mlp_norm.weight"));
  }
}

// Of Qwen 3.5 and Qwen3-Next, which need not count it: a layer of attention under other names.
TEST(HfSource, ReadsTheLayerOfQwenThatPredictsLaterTokens) {
  for (const char* family : {"qwen3.5", "qwen3-next"}) {
    SCOPED_TRACE(family);
    HfFolder folder(family);
    const std::map<std::string, Tensor> tensors = folder.tensors;
    for (const auto& [name, tensor] : tensors) {
      constexpr std::string_view kLast = "model.layers.3.";
      if (name.starts_with(kLast))
        folder.tensors["mtp.layers.0." + name.substr(kLast.size())] = tensor;
    }
    const auto own = [&](const char* name, const Shape& shape, float value) {
      const Tensor tensor = host_tensor(DType::kF32, shape);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.data<float>()[i] = value + static_cast<float>(i);
      folder.tensors[name] = tensor;
    };
    own("mtp.pre_fc_norm_embedding.weight", {32}, 0.5F);
    own("mtp.pre_fc_norm_hidden.weight", {32}, 1.5F);
    own("mtp.fc.weight", {32, 64}, 2.5F);
    own("mtp.norm.weight", {32}, 3.5F);
    folder.write();
    HfSource source(folder.path());
    EXPECT_EQ(source.model().mtp_layers, 1);
    EXPECT_TRUE(source.notes().empty());
    EXPECT_EQ(source.tensors(TensorKind::kWeight).size(), canonical_tensors(source.model()).size());
    const auto read = [&](const std::string& name, const Shape& shape) {
      std::vector<float> values(static_cast<std::size_t>(shape.elements()));
      source.read(name, whole_run(shape), DType::kF32, reinterpret_cast<std::byte*>(values.data()));
      return values;
    };
    EXPECT_EQ(read("mtp.layers.0.token_norm.weight", {32})[1], 1.5);
    EXPECT_EQ(read("mtp.layers.0.hidden_norm.weight", {32})[1], 2.5);
    EXPECT_EQ(read("mtp.layers.0.projection.weight", {32, 64})[70], 72.5);
    EXPECT_EQ(read("mtp.layers.0.final_norm.weight", {32})[1], 4.5);
    const Shape gate{source.model().heads * source.model().head_size, 32};
    EXPECT_EQ(read("mtp.layers.0.attention.gate.weight", gate),
              read("layers.3.attention.gate.weight", gate));
    EXPECT_EQ(hf_config_of(source.model()).config["mtp_num_hidden_layers"], 1);
    // More than the names hold, and those behind another kind of layer.
    folder.edit_config([](auto& config) { config["mtp_num_hidden_layers"] = 2; });
    EXPECT_EQ(HfSource(folder.path()).model().mtp_layers, 0);
    EXPECT_THAT(HfSource(folder.path()).notes(), testing::ElementsAre(HasSubstr("left out")));
  }
}

// DeepSeek publishes matrices of 8-bit floating numbers, those of later layers too.
TEST(HfSource, ExpandsMatricesOfFloat8AndLeavesOutThoseOfLaterLayers) {
  HfFolder folder("deepseek-v3");
  folder.edit_config([](auto& config) {
    config["num_nextn_predict_layers"] = 1;
    config["dtype"] = "bfloat16";
    config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {16, 8}}};
  });
  const std::int64_t layers = HfConfig::read(folder.path()).size("num_hidden_layers");
  folder.tensors[fmt::format("model.layers.{}.eh_proj.weight", layers)] =
      host_tensor(DType::kF32, {32, 64});
  std::vector<SafetensorsEntry> entries;
  std::vector<std::vector<std::byte>> bytes;
  for (const auto& [name, tensor] : folder.tensors) {
    const bool matrix = name.ends_with("proj.weight") || name.ends_with("_mqa.weight");
    const auto raw =
        std::as_bytes(std::span(tensor.data<float>(), static_cast<std::size_t>(tensor.elements())));
    if (!matrix) {
      entries.push_back({.name = name,
                         .dtype = "F32",
                         .shape = {tensor.shape().sizes().begin(), tensor.shape().sizes().end()}});
      bytes.emplace_back(raw.begin(), raw.end());
      continue;
    }
    const std::int64_t rows = tensor.dim(0);
    const std::int64_t columns = tensor.dim(1);
    const std::int64_t down = (rows + 15) / 16;
    const std::int64_t across = (columns + 7) / 8;
    // Numbers 1 / 64 (0x08), and a scale of 1 + the block's number / 128.
    entries.push_back({.name = name, .dtype = "F8_E4M3", .shape = {rows, columns}});
    bytes.emplace_back(static_cast<std::size_t>(rows * columns), std::byte{8});
    std::vector<float> scales;
    for (std::int64_t i = 0; i < down * across; ++i)
      scales.push_back(1 + static_cast<float>(i) / 128);
    entries.push_back({.name = name + "_scale_inv", .dtype = "F32", .shape = {down, across}});
    const auto scale_bytes = std::as_bytes(std::span(scales));
    bytes.emplace_back(scale_bytes.begin(), scale_bytes.end());
  }
  SafetensorsWriter writer(folder.path() / "model.safetensors", entries);
  for (const auto& part : bytes) writer.append(part);
  writer.commit();

  HfSource source(folder.path());
  EXPECT_EQ(source.tensors(TensorKind::kWeight).size(), canonical_tensors(source.model()).size());
  EXPECT_EQ(source.notes().size(), 1U);
  const std::string name = "layers.0.mlp.down.weight";
  EXPECT_FALSE(source.stored_format(name));
  const auto list = source.tensors(TensorKind::kWeight);
  const auto found = std::ranges::find(list, name, &CanonicalTensor::name);
  ASSERT_NE(found, list.end());
  EXPECT_EQ(found->dtype, DType::kBF16);
  const Shape shape = found->shape;
  const std::vector<double> values = whole(source, name, shape);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t row = i / 54;
    const std::size_t block = row / 16 * 7 + i % 54 / 8;
    ASSERT_EQ(values[i], (1 + static_cast<double>(block) / 128) / 64) << i;
  }
}

TEST(HfDownload, OfAnotherModelOrSizeIsNamed) {
  const auto spoiled = [](const std::function<void(HfFolder&)>& spoil) {
    HfFolder folder("llama");
    spoil(folder);
    folder.write();
    return refusal(folder.path());
  };
  EXPECT_THAT(spoiled([](HfFolder& f) { f.tensors.erase("model.layers.1.mlp.up_proj.weight"); }),
              HasSubstr("missing tensors (1): model.layers.1.mlp.up_proj.weight; is the download"));
  EXPECT_THAT(
      spoiled([](HfFolder& f) { f.tensors["score.weight"] = host_tensor(DType::kF32, {2}); }),
      HasSubstr("tensors that are not of a model of type llama (1): score.weight"));
  EXPECT_THAT(
      spoiled([](HfFolder& f) { f.tensors["model.norm.weight"] = host_tensor(DType::kF32, {33}); }),
      HasSubstr("model.safetensors: model.norm.weight is [33], "));
  EXPECT_THAT(spoiled([](HfFolder& f) {
                f.tensors["model.layers.0.mlp.up_proj.weight"] = host_tensor(DType::kF32, {32, 53});
              }),
              HasSubstr("is [32, 53], "));
  EXPECT_THAT(
      spoiled([](HfFolder& f) { f.tensors["model.norm.weight"] = host_tensor(DType::kI32, {32}); }),
      HasSubstr("model.norm.weight is of type I32, wanted F32"));
  EXPECT_THAT(
      spoiled([](HfFolder& f) { f.edit_config([](auto& c) { c["num_hidden_layers"] = 3; }); }),
      HasSubstr("missing tensors (9): model.layers.2."));
  // Not even a list of what is missing is made of so many.
  EXPECT_THAT(spoiled([](HfFolder& f) {
                f.edit_config([](auto& c) { c["num_hidden_layers"] = 2'000'000'000; });
              }),
              HasSubstr("config.json: a model of 2000000000 layers, and the files hold 21 tensors; "
                        "is it of another size?"));
  EXPECT_THAT(
      spoiled([](HfFolder& f) { f.edit_config([](auto& c) { c["intermediate_size"] = 54; }); }),
      HasSubstr("says [54, 32]; is it from another size of this model?"));
  EXPECT_THAT(spoiled([](HfFolder& f) { f.edit_config([](auto& c) { c["vocab_size"] = 132; }); }),
              HasSubstr("model.embed_tokens.weight is [131, 32], "));
}

// What git without LFS, and a cache whose blobs were removed, leave.
TEST(HfDownload, OfPlaceholdersIsNamed) {
  HfFolder folder("llama");
  const fs::path weights = folder.path() / "model.safetensors";
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n";
  write_text_file(weights, pointer);
  EXPECT_EQ(refusal(folder.path()), weights.string() +
                                        ": got a pointer of Git LFS, wanted the "
                                        "file itself; git lfs pull fetches it");
  fs::rename(weights, folder.path() / "pytorch_model.bin");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("got a pointer of Git LFS"));
  fs::remove(folder.path() / "pytorch_model.bin");
  fs::create_symlink("../../blobs/1234", weights);
  EXPECT_THAT(refusal(folder.path()), HasSubstr("got model.safetensors, a link to no file"));
}

TEST(HfDownload, WithoutConfigIsStillOne) {
  HfFolder folder("llama");
  fs::remove(folder.path() / "config.json");
  EXPECT_TRUE(is_huggingface_folder(folder.path()));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("config.json: cannot open: No such file"));
}

TEST(HfDownload, WhoseConfigOrIndexIsALinkToElsewhereIsRefused) {
  for (const char* name : {"config.json", "model.safetensors.index.json"}) {
    HfFolder folder("llama");
    folder.write_shards(2);
    const TempFolder elsewhere;
    fs::rename(folder.path() / name, elsewhere / name);
    fs::create_symlink(elsewhere / name, folder.path() / name);
    EXPECT_THAT(refusal(folder.path()),
                HasSubstr(fmt::format("{}: a link that leads out of the folder", name)));
  }
}

TEST(HfDownload, WhoseFilesAreLinksMayLeadToTheBlobsOfACacheOnly) {
  HfFolder folder("llama");
  const TempFolder cache;
  const fs::path snapshot = cache / "snapshots" / "abc";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  fs::copy_file(folder.path() / "config.json", snapshot / "config.json");
  fs::copy_file(folder.path() / "model.safetensors", cache / "blobs" / "1234");
  fs::create_symlink("../../blobs/1234", snapshot / "model.safetensors");
  EXPECT_NO_THROW(HfSource{snapshot});
  fs::rename(cache / "blobs" / "1234", cache / "1234");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../1234", snapshot / "model.safetensors");
  EXPECT_THAT(refusal(snapshot),
              HasSubstr("model.safetensors: a link that leads out of the folder"));
}

}  // namespace
}  // namespace piton
