// Models with layers of Mamba-2 or with short convolutions in GGUF files. That llama.cpp computes
// what Piton does is held by tools/oracle/gguf_files.py; gguf_source_test.cpp has files of the
// `gguf` package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "huggingface/config_keys.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::entry_of;
using test::erase_entry;
using test::floats_of;
using test::golden_folder;
using test::HfFolder;
using test::set_entry;
using test::tensor_named;
using test::tensor_of;
using testing::HasSubstr;

class GgufOfMamba : public testing::Test {
 protected:
  std::string refusal(const std::string& golden, const std::function<void(GgufHeader&)>& change) {
    return files_.refusal(golden_folder(golden), change);
  }

  test::GgufWorkshop files_;
};

// Values as the file has them, without Piton's tables of places.
std::vector<float> stored(const GgufSource& source, const std::string& name) {
  const auto& tensors = source.file().header().tensors;
  const auto tensor = std::ranges::find(tensors, name, &GgufTensor::name);
  std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
  source.file().file().read_at(source.file().offset(*tensor),
                               std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<std::int64_t> stored_shape(const GgufSource& source, const std::string& name) {
  const auto& tensors = source.file().header().tensors;
  return std::ranges::find(tensors, name, &GgufTensor::name)->shape;
}

std::int64_t number_of(const GgufDescription& description, const std::string& key) {
  const GgufValue* value = entry_of(description, key);
  return value == nullptr ? -1 : value->integer();
}

TEST_F(GgufOfMamba, OfEveryTypeIsReadAsItWasWritten) {
  for (const auto& [golden, architecture] : {std::pair("granite4-mamba", "granitehybrid"),
                                             {"granite4-mamba-moe", "granitehybrid"},
                                             {"mamba2", "mamba2"}}) {
    for (const std::optional<GgmlType> type :
         {std::optional<GgmlType>{}, std::optional(GgmlType::kF16), std::optional(GgmlType::kBF16),
          std::optional(GgmlType::kQ80), std::optional(GgmlType::kQ40),
          std::optional(GgmlType::kQ4K), std::optional(GgmlType::kQ6K)}) {
      SCOPED_TRACE(fmt::format("{} {}", golden, type ? piton::name(*type) : "as it is"));
      GgufSource source(files_.write(golden_folder(golden), type));
      HfSource original(golden_folder(golden));
      EXPECT_EQ(source.architecture().name, architecture);
      EXPECT_EQ(source.family(), original.config().word("model_type"));
      EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
      AsGgufHolds held(original, source);
      test::expect_equal(source, held);
      for (const char* part :
           {"value_filter", "key_filter_bias", "rate", "skip", "step_bias", "norm.weight"})
        EXPECT_EQ(source.stored_type(fmt::format("layers.0.mamba.{}", part)), GgmlType::kF32);
      if (type == GgmlType::kQ80) {
        EXPECT_EQ(source.stored_type("layers.0.mamba.step.weight"), GgmlType::kQ80);
        EXPECT_EQ(source.stored_type("layers.0.mamba.output.weight"), GgmlType::kQ80);
      }
    }
  }
}

// The tensors of the folder, put together here.
TEST_F(GgufOfMamba, HasTheTensorsOfLlamaCpp) {
  for (const auto& [golden, module] : {std::pair("granite4-mamba-moe", "model.layers.0.mamba."),
                                       {"mamba2", "backbone.layers.0.mixer."}}) {
    SCOPED_TRACE(golden);
    const HfFolder folder(golden);
    const GgufSource source(files_.write(folder.path()));
    const auto theirs = [&](const char* part) {
      const Tensor& tensor = folder.tensors.at(std::string(module) + part);
      return std::vector<float>(tensor.data<float>(), tensor.data<float>() + tensor.elements());
    };
    for (const auto& [ours, part] : {std::pair("ssm_in.weight", "in_proj.weight"),
                                     {"ssm_conv1d.weight", "conv1d.weight"},
                                     {"ssm_conv1d.bias", "conv1d.bias"},
                                     {"ssm_dt.bias", "dt_bias"},
                                     {"ssm_d", "D"},
                                     {"ssm_norm.weight", "norm.weight"},
                                     {"ssm_out.weight", "out_proj.weight"}})
      EXPECT_EQ(stored(source, fmt::format("blk.0.{}", ours)), theirs(part)) << ours;
    const std::vector<float> rates = theirs("A_log");
    const std::vector<float> a = stored(source, "blk.0.ssm_a");
    ASSERT_EQ(a.size(), rates.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_FLOAT_EQ(a[i], -std::exp(rates[i]));
    const std::int64_t heads = std::ssize(rates);
    EXPECT_THAT(stored_shape(source, "blk.0.ssm_a"), testing::ElementsAre(heads, 1));
    EXPECT_THAT(stored_shape(source, "blk.0.ssm_d"), testing::ElementsAre(heads, 1));
    EXPECT_THAT(stored_shape(source, "blk.0.ssm_norm.weight"), testing::ElementsAre(2, 32));
    EXPECT_EQ(stored_shape(source, "blk.0.ssm_conv1d.weight").size(), 2);
  }
}

TEST_F(GgufOfMamba, SaysItsKeys) {
  const auto described = [](const char* golden) {
    HfSource original(golden_folder(golden));
    return describe_gguf(original.model(), original.config().word("model_type"), "x");
  };
  const GgufDescription experts = described("granite4-mamba-moe");
  EXPECT_EQ(experts.architecture, "granitehybrid");
  EXPECT_THAT(entry_of(experts, "attention.head_count_kv")->integers(),
              testing::ElementsAre(0, 2, 0, 0));
  EXPECT_EQ(number_of(experts, "ssm.conv_kernel"), 4);
  EXPECT_EQ(number_of(experts, "ssm.state_size"), 12);
  EXPECT_EQ(number_of(experts, "ssm.group_count"), 2);
  EXPECT_EQ(number_of(experts, "ssm.time_step_rank"), 8);
  EXPECT_EQ(number_of(experts, "ssm.inner_size"), 64);
  EXPECT_EQ(number_of(experts, "feed_forward_length"), 18);
  EXPECT_EQ(number_of(experts, "expert_shared_feed_forward_length"), 26);
  EXPECT_EQ(number_of(experts, "rope.dimension_count"), 8);
  EXPECT_EQ(entry_of(experts, "rope.scaling.finetuned"), nullptr);
  EXPECT_TRUE(experts.shapes.contains("blk.0.ffn_up_shexp.weight"));

  const GgufDescription dense = described("granite4-mamba");
  EXPECT_EQ(dense.architecture, "granitehybrid");
  EXPECT_EQ(number_of(dense, "feed_forward_length"), 54);
  EXPECT_FALSE(entry_of(dense, "rope.scaling.finetuned")->truth());
  EXPECT_TRUE(dense.shapes.contains("blk.0.ffn_norm.weight"));
  EXPECT_TRUE(dense.shapes.contains("blk.1.attn_q.weight"));
  EXPECT_FALSE(dense.shapes.contains("blk.0.attn_q.weight"));

  const GgufDescription mamba = described("mamba2");
  EXPECT_EQ(mamba.architecture, "mamba2");
  EXPECT_EQ(number_of(mamba, "feed_forward_length"), 0);
  EXPECT_EQ(number_of(mamba, "attention.head_count"), 0);
  EXPECT_EQ(number_of(mamba, "context_length"), 1 << 20);
  EXPECT_EQ(number_of(mamba, "ssm.group_count"), 2);
  EXPECT_FALSE(mamba.shapes.contains("blk.0.ffn_norm.weight"));
}

// llama.cpp's converter writes rows of query and key in pairs whether the model has positions or
// not.
TEST_F(GgufOfMamba, HasQueriesInPairsAlsoWithoutPositions) {
  const HfFolder folder("granite4-mamba");
  const GgufSource source(files_.write(folder.path()));
  const std::vector<float> file = stored(source, "blk.1.attn_k.weight");
  const float* theirs = folder.tensors.at("model.layers.1.self_attn.k_proj.weight").data<float>();
  constexpr std::int64_t kColumns = 32;
  // Heads of 8.
  const std::int64_t wanted[] = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12};
  for (std::int64_t row = 0; row < 10; ++row)
    EXPECT_EQ(file[static_cast<std::size_t>(row * kColumns)], theirs[wanted[row] * kColumns]);
}

// llama.cpp does not run such a model, but the file describes one.
TEST_F(GgufOfMamba, OfLayersWithoutAttentionIsRead) {
  const ModelConfig model = HfSource(golden_folder("granite4-mamba-moe")).model();
  GgufDescription description = describe_gguf(model, "granitemoehybrid", "x");
  const std::vector<std::int32_t> none(4, 0);
  for (GgufEntry& entry : description.entries) {
    if (entry.key.ends_with("head_count_kv"))
      entry.value = GgufValue::numbers(std::span<const std::int32_t>(none));
  }
  const ModelConfig read = gguf_model(description, "x");
  EXPECT_EQ(read.state_layers(), 4);
  EXPECT_EQ(read.heads, 1);
  EXPECT_EQ(read.head_size, read.hidden);
  EXPECT_EQ(read.positions, PositionKind::kNone);
}

// Biases of attention are found in the first layer that has it.
TEST_F(GgufOfMamba, OfBiasesComesBack) {
  for (const bool biases : {false, true}) {
    ModelConfig model = HfSource(golden_folder("granite4-mamba")).model();
    model.qkv_biases = model.output_bias = biases;
    const ModelConfig read = gguf_model(describe_gguf(model, "granitemoehybrid", "x"), "x");
    EXPECT_EQ(read.qkv_biases, biases);
    EXPECT_EQ(read.output_bias, biases);
    EXPECT_THAT(read.state_space->attention_layers, testing::ElementsAre(1));
  }
}

TEST_F(GgufOfMamba, WhatLlamaCppDoesNotHaveIsRefused) {
  const auto refused = [](const char* golden, const std::function<void(ModelConfig&)>& change) {
    HfSource source(golden_folder(golden));
    ModelConfig model = source.model();
    change(model);
    return message_of(Fault::kData,
                      [&] { describe_gguf(model, source.config().word("model_type"), "x"); });
  };
  const std::string hybrid =
      "no architecture of llama.cpp holds this model (granite): as \"granitehybrid\": ";
  EXPECT_THAT(
      refused("granite4-mamba", [](ModelConfig& m) { m.state_space->heads = 6; }),
      HasSubstr(hybrid + "llama.cpp has heads of Mamba-2 that are together twice as wide as the "
                         "stream there, and these have 96 channels, of a stream of 32"));
  EXPECT_THAT(
      refused("granite4-mamba", [](ModelConfig& m) { m.state_space->attention_layers.clear(); }),
      HasSubstr(hybrid + "llama.cpp has attention in some layer there"));
  EXPECT_THAT(refused("granite4-mamba", [](ModelConfig& m) { m.bare_layers = {2}; }),
              HasSubstr(hybrid + "llama.cpp has an MLP or experts in each layer there"));
  EXPECT_THAT(refused("granite4-mamba", [](ModelConfig& m) { m.norm = NormKind::kLayer; }),
              HasSubstr(hybrid));
  EXPECT_THAT(refused("granite4-mamba-moe", [](ModelConfig& m) { m.experts->dense_layers = {0}; }),
              HasSubstr(hybrid + "llama.cpp has experts in all layers there"));
  EXPECT_THAT(refused("mamba2", [](ModelConfig& m) { m.state_space->attention_layers = {1}; }),
              HasSubstr("(mamba2): as \"mamba2\": llama.cpp has layers of Mamba-2 alone there, "
                        "without MLPs"));
}

// Mamba-2 itself may have states of any width.
TEST_F(GgufOfMamba, OfOtherWidthsComesBack) {
  ModelConfig model = HfSource(golden_folder("mamba2")).model();
  model.state_space->heads = 6;
  model.state_space->groups = 3;
  model.state_space->width = 2;
  const ModelConfig read = gguf_model(describe_gguf(model, "mamba2", "x"), "x");
  EXPECT_EQ(read.state_space, model.state_space);
  EXPECT_EQ(model_difference(model_in_gguf(model), read), "");
}

TEST_F(GgufOfMamba, KeysThatDisagreeAreRefused) {
  for (const auto& [golden, architecture] :
       {std::pair<std::string, std::string>{"granite4-mamba", "granitehybrid"},
        {"mamba2", "mamba2"}}) {
    const auto with = [&](const std::string& key, const GgufValue& value) {
      return refusal(
          golden, [&](GgufHeader& header) { set_entry(header, architecture + "." + key, value); });
    };
    for (const char* key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
                            "ssm.time_step_rank", "ssm.inner_size"}) {
      EXPECT_THAT(refusal(golden,
                          [&](GgufHeader& header) {
                            erase_entry(header, fmt::format("{}.{}", architecture, key));
                          }),
                  HasSubstr(fmt::format("{}.{}: got nothing, wanted a positive integer below 2^31",
                                        architecture, key)));
    }
    EXPECT_THAT(with("ssm.inner_size", GgufValue::u32(66)),
                HasSubstr("ssm.inner_size: got 66, wanted a multiple of ssm.time_step_rank, "
                          "which is 4"));
    EXPECT_THAT(with("ssm.group_count", GgufValue::u32(3)),
                HasSubstr("ssm.group_count: got 3, wanted a divisor of ssm.time_step_rank, "
                          "which is 4"));
    EXPECT_THAT(with("ssm.state_size", GgufValue::u32(1 << 30)),
                HasSubstr("ssm.state_size: got 1073741824, wanted at most 32768"));
    EXPECT_THAT(with("ssm.state_size", GgufValue::u32(300)),
                HasSubstr("describes a model that cannot be: --mamba-state-dim: got 300"));
    EXPECT_THAT(with("ssm.conv_kernel", GgufValue::u32(5)),
                HasSubstr("blk.0.ssm_conv1d.weight is ["));
    EXPECT_THAT(with("ssm.inner_size", GgufValue::u32(32)), HasSubstr(", the keys say ["));
  }
}

TEST_F(GgufOfMamba, LayersWithAttentionHaveTheSameHeads) {
  const auto with = [&](std::vector<std::int32_t> counts) {
    return refusal("granite4-mamba", [&](GgufHeader& header) {
      set_entry(header, "granitehybrid.attention.head_count_kv",
                GgufValue::numbers(std::span<const std::int32_t>(counts)));
    });
  };
  const std::string key = "granitehybrid.attention.head_count_kv: got a list, wanted ";
  EXPECT_THAT(with({0, 2, 0}), HasSubstr(key + "a number for each layer"));
  EXPECT_THAT(with({0, 2, 4, 0}),
              HasSubstr(key + "the same number in all layers with attention, 0 in others"));
  EXPECT_THAT(with({0, -2, 0, 0}), HasSubstr(key + "the same number"));
  EXPECT_THAT(with({2, 0, 0, 0}), HasSubstr("missing tensors"));
  EXPECT_THAT(with({0, 0, 0, 0}), HasSubstr("missing tensors"));
  // A number is that of all layers, none of which is of Mamba-2 then.
  EXPECT_THAT(refusal("granite4-mamba",
                      [](GgufHeader& header) {
                        set_entry(header, "granitehybrid.attention.head_count_kv",
                                  GgufValue::u32(2));
                      }),
              HasSubstr("missing tensors"));
}

// Files hold -exp(rate).
TEST_F(GgufOfMamba, RatesThatAreNotNegativeAreRefused) {
  const fs::path path = files_.write(golden_folder("mamba2"));
  std::int64_t at = 0;
  {
    GgufFile file(path);
    GgufHeader header = file.header();
    at = file.offset(tensor_of(header, "blk.2.ssm_a"));
  }
  std::string bytes = read_text_file(path);
  const float bad = 0.5F;
  std::memcpy(bytes.data() + at + sizeof(float), &bad, sizeof bad);
  write_text_file(path, bytes);
  GgufSource source(path);
  const auto tensors = source.tensors(TensorKind::kWeight);
  EXPECT_THAT(message_of(Fault::kData,
                         [&] { floats_of(source, tensor_named(tensors, "layers.2.mamba.rate")); }),
              HasSubstr("blk.2.ssm_a: got 0.5, wanted numbers below 0: -exp(rate)"));
}

// Of all layers with attention, Granite 4's experts are Granite 3's next to an MLP.
TEST_F(GgufOfMamba, WithoutMambaGraniteOfExpertsIsAnotherArchitecture) {
  ModelConfig model = HfSource(golden_folder("granite4-mamba-moe")).model();
  model.state_space.reset();
  const GgufDescription description = describe_gguf(model, "granitemoehybrid", "x");
  EXPECT_EQ(description.architecture, "granitemoe");
  EXPECT_EQ(model_difference(model_in_gguf(model), gguf_model(description, "x")), "");
  GgufSource older(files_.write(golden_folder("granite-moe"), GgmlType::kQ80));
  EXPECT_EQ(older.architecture().name, "granitemoe");
  EXPECT_EQ(older.family(), "granitemoe");
}

class GgufOfConvolutions : public GgufOfMamba {};

TEST_F(GgufOfConvolutions, OfEveryTypeIsReadAsItWasWritten) {
  for (const auto& [golden, architecture] :
       {std::pair("lfm2", "lfm2"), std::pair("lfm2-moe", "lfm2moe")}) {
    for (const std::optional<GgmlType> type :
         {std::optional<GgmlType>{}, std::optional(GgmlType::kBF16),
          std::optional(GgmlType::kQ80)}) {
      SCOPED_TRACE(fmt::format("{} {}", golden, type ? piton::name(*type) : "as it is"));
      GgufSource source(files_.write(golden_folder(golden), type));
      HfSource original(golden_folder(golden));
      EXPECT_EQ(source.architecture().name, architecture);
      EXPECT_EQ(source.family(), original.config().word("model_type"));
      EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
      AsGgufHolds held(original, source);
      test::expect_equal(source, held);
      EXPECT_EQ(source.stored_type("layers.0.short_conv.filter"), GgmlType::kF32);
      if (type == GgmlType::kQ80) {
        EXPECT_EQ(source.stored_type("layers.0.short_conv.output.weight"), GgmlType::kQ80);
      }
    }
  }
}

TEST_F(GgufOfConvolutions, SaysItsKeysAndTensors) {
  HfSource original(golden_folder("lfm2-moe"));
  const GgufDescription description = describe_gguf(original.model(), "lfm2_moe", "x");
  EXPECT_EQ(description.architecture, "lfm2moe");
  EXPECT_THAT(entry_of(description, "attention.head_count_kv")->integers(),
              testing::ElementsAre(0, 2, 0, 0));
  EXPECT_EQ(number_of(description, "shortconv.l_cache"), 3);
  EXPECT_EQ(number_of(description, "leading_dense_block_count"), 1);
  EXPECT_EQ(number_of(description, "expert_gating_func"), 2);
  EXPECT_EQ(number_of(description, "expert_feed_forward_length"), 18);
  EXPECT_EQ(number_of(description, "feed_forward_length"), 54);
  for (const char* tensor :
       {"token_embd_norm.weight", "blk.0.shortconv.conv.weight", "blk.0.shortconv.in_proj.weight",
        "blk.0.shortconv.out_proj.weight", "blk.1.attn_q_norm.weight", "blk.1.exp_probs_b.bias"})
    EXPECT_TRUE(description.shapes.contains(tensor)) << tensor;
  EXPECT_FALSE(description.shapes.contains("output_norm.weight"));
}

// llama.cpp ends where no layer has one.
TEST_F(GgufOfConvolutions, WithoutConvolutionsIsOfAnotherArchitecture) {
  ModelConfig model = HfSource(golden_folder("lfm2")).model();
  model.short_convolution.reset();
  const GgufDescription description = describe_gguf(model, "lfm2", "x");
  EXPECT_EQ(description.architecture, "qwen3");
  EXPECT_EQ(model_difference(model_in_gguf(model), gguf_model(description, "x")), "");
}

TEST_F(GgufOfConvolutions, WhatLlamaCppDoesNotHaveIsRefused) {
  const auto refused = [](const char* golden, const std::function<void(ModelConfig&)>& change) {
    HfSource source(golden_folder(golden));
    ModelConfig model = source.model();
    change(model);
    return message_of(Fault::kData,
                      [&] { describe_gguf(model, source.config().word("model_type"), "x"); });
  };
  const std::string dense = "(lfm2): as \"lfm2\": ";
  EXPECT_THAT(refused("lfm2", [](ModelConfig& m) { m.short_convolution->biases = true; }),
              HasSubstr(dense + "llama.cpp has no biases of short convolutions"));
  EXPECT_THAT(refused("lfm2", [](ModelConfig& m) { m.short_convolution->width = 1; }),
              HasSubstr(dense + "llama.cpp has short convolutions of 2 or more rows"));
  EXPECT_THAT(
      refused("lfm2", [](ModelConfig& m) { m.short_convolution->attention_layers.clear(); }),
      HasSubstr(dense + "llama.cpp has attention in some layer there"));
  EXPECT_THAT(refused("lfm2-moe", [](ModelConfig& m) { m.experts->choice_bias = false; }),
              HasSubstr("as \"lfm2moe\": llama.cpp has a bias of the choice there"));
  EXPECT_THAT(refused("lfm2-moe", [](ModelConfig& m) { m.experts->weight_factor = 2; }),
              HasSubstr("as \"lfm2moe\": there is no word for its experts"));
}

TEST_F(GgufOfConvolutions, KeysThatDisagreeAreRefused) {
  const auto with = [&](const std::string& golden, const std::string& key, const GgufValue& value) {
    return refusal(golden, [&](GgufHeader& header) { set_entry(header, key, value); });
  };
  EXPECT_THAT(with("lfm2", "lfm2.shortconv.l_cache", GgufValue::u32(1)),
              HasSubstr("lfm2.shortconv.l_cache: got 1, wanted 2 or more rows"));
  EXPECT_THAT(with("lfm2", "lfm2.shortconv.l_cache", GgufValue::u32(4)),
              HasSubstr("blk.0.shortconv.conv.weight is ["));
  EXPECT_THAT(with("lfm2-moe", "lfm2moe.expert_gating_func", GgufValue::u32(3)),
              HasSubstr("lfm2moe.expert_gating_func: got 3, wanted 1, a softmax, or 2, sigmoids"));
  for (const auto& [count, what] :
       {std::pair{0, "wanted heads in some layer"}, std::pair{2, "wanted 0 in some layer"}}) {
    const std::vector<std::int32_t> counts(4, count);
    EXPECT_THAT(with("lfm2", "lfm2.attention.head_count_kv",
                     GgufValue::numbers(std::span<const std::int32_t>(counts))),
                HasSubstr(what));
  }
}

}  // namespace
}  // namespace piton
