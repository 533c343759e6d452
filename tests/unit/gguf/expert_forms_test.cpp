// Models of latent attention in GGUF files. That llama.cpp computes what Piton does is held by
// tools/oracle/gguf_files.py; gguf_source_test.cpp has files of the `gguf` package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "huggingface/config_keys.h"
#include "model/families.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::floats_of;
using test::HfFolder;
using testing::HasSubstr;

constexpr std::int64_t kHeads = 4, kOwn = 10, kValue = 12, kRank = 20;

class GgufOfLatents : public testing::Test {
 protected:
  // llama.cpp has one number for both factors of yarn.
  GgufOfLatents() {
    for (HfFolder* folder : {&v2_, &v3_}) {
      folder->edit_config([](Json& config) { config["rope_parameters"]["mscale"] = 1.1; });
    }
  }

  std::string refusal(const std::function<void(GgufHeader&)>& change) {
    return files_.refusal(v3_.path(), change);
  }

  // What a file of `model` has as a key; nullopt: nothing.
  static std::optional<std::int64_t> key(const GgufDescription& description,
                                         const std::string& name) {
    for (const GgufEntry& entry : description.entries) {
      if (entry.key == "deepseek2." + name) return entry.value.integer();
    }
    return std::nullopt;
  }

  HfFolder v2_{"deepseek-v2"};
  HfFolder v3_{"deepseek-v3"};
  test::GgufWorkshop files_;
};

TEST_F(GgufOfLatents, OfEveryTypeIsReadAsItWasWritten) {
  for (const HfFolder* folder : {&v2_, &v3_}) {
    for (const std::optional<GgmlType> type :
         {std::optional<GgmlType>{}, std::optional(GgmlType::kF16), std::optional(GgmlType::kBF16),
          std::optional(GgmlType::kQ80), std::optional(GgmlType::kQ4K)}) {
      SCOPED_TRACE(type ? piton::name(*type) : "as it is");
      GgufSource source(files_.write(folder->path(), type));
      HfSource original(folder->path());
      EXPECT_EQ(source.architecture().name, "deepseek2");
      EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
      AsGgufHolds held(original, source);
      for (const CanonicalTensor& one : original.tensors(TensorKind::kWeight)) {
        EXPECT_EQ(floats_of(source, one), floats_of(held, one)) << one.name;
        if (!type) {
          EXPECT_EQ(floats_of(source, one), floats_of(original, one)) << one.name;
        }
      }
    }
  }
}

TEST_F(GgufOfLatents, IsAModelOfItsFamily) {
  EXPECT_EQ(GgufSource(files_.write(v2_.path())).family(), "deepseek_v2");
  EXPECT_EQ(GgufSource(files_.write(v3_.path())).family(), "deepseek_v3");
}

// Keys of a head are turned; values are as they are. Neither is ever quantized.
TEST_F(GgufOfLatents, HasKeysAndValuesOfEachHead) {
  HfSource original(v3_.path());
  const CanonicalTensor joint{"layers.1.attention.key_value.weight", DType::kF32,
                              Shape{kHeads * (kOwn + kValue), kRank}};
  const std::vector<float> rows = floats_of(original, joint);
  GgufFile file(files_.write(v3_.path()));
  GgufHeader header = file.header();
  const auto stored = [&](const std::string& name, std::vector<std::int64_t> shape) {
    const GgufTensor& tensor = test::tensor_of(header, name);
    EXPECT_EQ(tensor.shape, shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    file.file().read_at(file.offset(tensor), std::as_writable_bytes(std::span(values)));
    return values;
  };
  const std::vector<float> keys = stored("blk.1.attn_k_b.weight", {kHeads, kRank, kOwn});
  const std::vector<float> values = stored("blk.1.attn_v_b.weight", {kHeads, kValue, kRank});
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t column = 0; column < kRank; ++column) {
      const std::int64_t first = head * (kOwn + kValue);
      for (std::int64_t i = 0; i < kOwn; ++i)
        EXPECT_EQ(keys[at((head * kRank + column) * kOwn + i)],
                  rows[at((first + i) * kRank + column)]);
      for (std::int64_t i = 0; i < kValue; ++i)
        EXPECT_EQ(values[at((head * kValue + i) * kRank + column)],
                  rows[at((first + kOwn + i) * kRank + column)]);
    }
  }
  const GgufSource quantized(files_.write(v3_.path(), GgmlType::kQ80));
  EXPECT_EQ(quantized.stored_type(joint.name), GgmlType::kF16);
  EXPECT_EQ(quantized.stored_format(joint.name), std::nullopt);
  EXPECT_EQ(quantized.stored_type("layers.1.attention.latent.weight"), GgmlType::kQ80);
}

// llama.cpp knows by the number of layers which models have queries without a latent.
TEST_F(GgufOfLatents, HasTheKeysThatLlamaCppWants) {
  const ModelConfig lite = preset("deepseek-v2-lite");
  ASSERT_EQ(lite.layers, 27);
  EXPECT_EQ(key(describe_gguf(lite, "", "x"), "attention.q_lora_rank"), std::nullopt);
  ModelConfig other = lite;
  other.layers = 12;
  const GgufDescription description = describe_gguf(other, "", "x");
  EXPECT_EQ(key(description, "attention.q_lora_rank"), 0);
  EXPECT_EQ(key(description, "attention.head_count_kv"), 1);
  EXPECT_EQ(key(description, "attention.key_length"), 512 + 64);
  EXPECT_EQ(key(description, "attention.key_length_mla"), 128 + 64);
  EXPECT_EQ(key(description, "leading_dense_block_count"), 1);
  EXPECT_EQ(key(description, "expert_shared_count"), 2);
  ModelConfig ranked = lite;
  ranked.latent->query_rank = 1536;
  EXPECT_THAT(message_of(Fault::kData, [&] { describe_gguf(ranked, "", "x"); }),
              HasSubstr("as \"deepseek2\": llama.cpp has no latent of queries in models of 27 "
                        "layers"));
  const GgufDescription v3 = describe_gguf(preset("deepseek-v3"), "", "x");
  EXPECT_EQ(key(v3, "attention.q_lora_rank"), 1536);
  EXPECT_EQ(key(v3, "expert_gating_func"), 2);
  EXPECT_EQ(key(v3, "expert_group_used_count"), 4);
}

TEST_F(GgufOfLatents, WithoutExpertsHasTheKeysOfThem) {
  HfSource original(test::golden_folder("deepseek-v2-ranks"));
  ASSERT_FALSE(original.model().experts);
  const GgufDescription description = describe_gguf(original.model(), "", "x");
  EXPECT_EQ(key(description, "leading_dense_block_count"), 2);
  EXPECT_EQ(key(description, "expert_feed_forward_length"), 54);
  EXPECT_EQ(key(description, "expert_shared_count"), 0);
  EXPECT_EQ(key(description, "expert_count"), std::nullopt);
}

// All groups are none: llama.cpp wants fewer.
TEST_F(GgufOfLatents, HasNoGroupsIfATokenChoosesOfAll) {
  v3_.edit_config([](Json& config) { config["topk_group"] = 4; });
  const GgufSource source(files_.write(v3_.path()));
  EXPECT_EQ(source.file().header().find("deepseek2.expert_group_count"), nullptr);
  EXPECT_EQ(source.model().experts->groups, ExpertGroups{});
}

TEST_F(GgufOfLatents, WhoseAnglesLlamaCppDoesNotHaveIsRefused) {
  const auto refused = [&](const std::function<void(Json&)>& change) {
    HfFolder folder("deepseek-v3");
    folder.edit_config(change);
    return message_of(Fault::kData, [&] { files_.write(folder.path()); });
  };
  EXPECT_THAT(refused([](Json&) {}),
              HasSubstr("as \"deepseek2\": there is no word for its rotary positions"));
  EXPECT_THAT(refused([](Json& config) {
                config["rope_parameters"].erase("mscale");
                config["rope_parameters"].erase("mscale_all_dim");
              }),
              HasSubstr("deepseek2.rope.scaling.yarn_log_multiplier: got 0, wanted a tenth of "
                        "mscale_all_dim, which is not 0"));
  EXPECT_THAT(refused([](Json& config) {
                config["rope_parameters"]["mscale"] = 1.1;
                config["rope_interleave"] = false;
              }),
              HasSubstr("as \"deepseek2\": it stores these tensors in another layout"));
}

TEST_F(GgufOfLatents, WhoseKeysContradictItsTensorsIsRefused) {
  const auto set = [](const std::string& key, std::int64_t value) {
    return [=](GgufHeader& header) {
      test::set_entry(header, "deepseek2." + key, GgufValue::u32(value));
    };
  };
  const auto without = [](const std::string& key) {
    return [=](GgufHeader& header) { test::erase_entry(header, "deepseek2." + key); };
  };
  EXPECT_THAT(
      refusal(without("attention.kv_lora_rank")),
      HasSubstr("deepseek2.attention.kv_lora_rank: got nothing, wanted a positive integer"));
  EXPECT_THAT(refusal(without("attention.q_lora_rank")),
              HasSubstr("deepseek2.attention.q_lora_rank: got nothing, wanted a positive integer"));
  EXPECT_THAT(refusal(set("attention.key_length_mla", 6)),
              HasSubstr("deepseek2.attention.key_length_mla: got 6, wanted more than "
                        "rope.dimension_count"));
  EXPECT_THAT(refusal(set("attention.value_length_mla", 65537)),
              HasSubstr("got 65537, wanted 65536 channels of a head at most"));
  EXPECT_THAT(refusal(set("attention.key_length", 16)),
              HasSubstr("deepseek2.attention.key_length: got 16, wanted attention.kv_lora_rank and "
                        "rope.dimension_count together"));
  EXPECT_THAT(refusal(set("attention.value_length_mla", 13)),
              HasSubstr("blk.0.attn_output.weight is [32, 48], the keys say [32, 52]"));
  EXPECT_THAT(
      refusal(without("rope.scaling.yarn_log_multiplier")),
      HasSubstr("deepseek2.rope.scaling.yarn_log_multiplier: got nothing, wanted a number"));
  EXPECT_THAT(refusal([](GgufHeader& header) {
                test::tensor_of(header, "blk.1.attn_v_b.weight").name = "blk.1.x";
              }),
              HasSubstr("missing tensors (1): blk.1.attn_v_b.weight"));
  EXPECT_THAT(refusal([](GgufHeader& header) {
                test::tensor_of(header, "blk.1.attn_k_b.weight").shape = {kRank, kHeads, kOwn};
              }),
              HasSubstr("blk.1.attn_k_b.weight is [20, 4, 10], the keys say [4, 20, 10]"));
}

// llama.cpp counts them among the blocks.
TEST_F(GgufOfLatents, IsReadWithoutLayersThatPredictLaterTokens) {
  const fs::path path = files_.write(v3_.path());
  GgufSource before(path);
  const auto add = [&](std::int64_t layers) {
    files_.edit(path, [&](GgufHeader& header) {
      test::set_entry(header, "deepseek2.block_count", GgufValue::u32(3));
      test::set_entry(header, "deepseek2.nextn_predict_layers", GgufValue::u32(layers));
      header.tensors.push_back({.name = "blk.2.nextn.enorm.weight", .shape = {32}});
    });
  };
  add(1);
  GgufSource source(path);
  EXPECT_EQ(source.model().layers, 2);
  const CanonicalTensor one{"layers.1.mlp.router.bias", DType::kF32, Shape{8}};
  EXPECT_EQ(source.tensors(TensorKind::kWeight).size(), before.tensors(TensorKind::kWeight).size());
  HfSource original(v3_.path());
  EXPECT_EQ(floats_of(source, one), floats_of(original, one));
  files_.edit(path, [&](GgufHeader& header) {
    test::set_entry(header, "deepseek2.nextn_predict_layers", GgufValue::u32(3));
  });
  EXPECT_THAT(message_of(Fault::kData, [&] { GgufSource wrong(path); }),
              HasSubstr("deepseek2.nextn_predict_layers: got 3, wanted fewer than block_count"));
}

}  // namespace
}  // namespace piton
