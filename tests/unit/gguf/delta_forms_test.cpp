// Models with the gated delta rule in GGUF files. That llama.cpp computes what Piton does is held
// by tools/oracle/gguf_files.py; gguf_source_test.cpp has files of the `gguf` package.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "huggingface/config_keys.h"
#include "support/family_folder.h"
#include "unit/gguf/written_gguf.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::erase_entry;
using test::floats_of;
using test::set_entry;
using test::tensor_named;
using test::tensor_of;
using testing::HasSubstr;

constexpr std::int64_t kKeysOfStates = 2, kOfEachKey = 3;

// Three heads of values to each of two keys: an order and its inverse differ.
class GgufOfStates : public testing::Test {
 protected:
  // A folder of random weights whose keys and values have `width` channels.
  fs::path folder(const std::string& family, std::int64_t width,
                  const std::function<void(Json&)>& edit = {}) {
    const fs::path path = dir_ / fmt::format("{}", ++folders_);
    test::write_family_folder(path, family, [&](Json& config) {
      config["linear_num_key_heads"] = kKeysOfStates;
      config["linear_num_value_heads"] = kKeysOfStates * kOfEachKey;
      config["linear_key_head_dim"] = config["linear_value_head_dim"] = width;
      config["moe_intermediate_size"] = 64;
      if (edit) edit(config);
    });
    return path;
  }
  // Of the other tests.
  const fs::path& tiled() {
    if (tiled_.empty()) tiled_ = folder("qwen3.5", 8);
    return tiled_;
  }

  std::string refusal(const std::function<void(GgufHeader&)>& change) {
    return files_.refusal(tiled(), change);
  }

  TempFolder dir_;
  int folders_ = 0;
  fs::path tiled_;
  test::GgufWorkshop files_;
};

std::vector<float> stored_values(const GgufSource& source, const std::string& name) {
  const auto& tensors = source.file().header().tensors;
  const auto tensor = std::ranges::find(tensors, name, &GgufTensor::name);
  std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
  source.file().file().read_at(source.file().offset(*tensor),
                               std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(GgufOfStates, OfEveryTypeIsReadAsItWasWritten) {
  const std::map<std::string, fs::path> folders = {
      {"qwen35", test::golden_folder("qwen3.5-heads")},
      {"qwen35moe", test::golden_folder("qwen3.5-moe")},
      {"qwen3next", folder("qwen3-next", 16)}};
  for (const auto& [architecture, path] : folders) {
    for (const std::optional<GgmlType> type :
         {std::optional<GgmlType>{}, std::optional(GgmlType::kBF16), std::optional(GgmlType::kQ80),
          std::optional(GgmlType::kQ4K)}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, type ? piton::name(*type) : "as it is"));
      GgufSource source(files_.write(path, type));
      HfSource original(path);
      EXPECT_EQ(source.architecture().name, architecture);
      EXPECT_EQ(source.family(), original.config().word("model_type"));
      EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
      AsGgufHolds held(original, source);
      test::expect_equal(source, held);
      EXPECT_EQ(source.stored_type("layers.0.delta.query_filter"), GgmlType::kF32);
    }
  }
}

// In a file value head p has key head p % keys; canonical head h has h / shared.
TEST_F(GgufOfStates, HasHeadsOfValuesInTheOrderOfLlamaCpp) {
  constexpr std::int64_t kWidth = 8, kHidden = 64;
  GgufSource source(files_.write(tiled(), GgmlType::kF32));
  HfSource original(tiled());
  const auto tensors = original.tensors(TensorKind::kWeight);
  const auto canonical = [&](const char* part) {
    return floats_of(original, tensor_named(tensors, fmt::format("layers.0.delta.{}", part)));
  };
  const std::vector<float> rates = canonical("rate"), strengths = canonical("strength.weight"),
                           outputs = canonical("output.weight"),
                           filters = canonical("value_filter");
  const std::vector<float> a = stored_values(source, "blk.0.ssm_a");
  const std::vector<float> beta = stored_values(source, "blk.0.ssm_beta.weight");
  const std::vector<float> out = stored_values(source, "blk.0.ssm_out.weight");
  const std::vector<float> conv = stored_values(source, "blk.0.ssm_conv1d.weight");
  ASSERT_EQ(std::ssize(a), kKeysOfStates * kOfEachKey);
  ASSERT_EQ(std::ssize(out), kHidden * kKeysOfStates * kOfEachKey * kWidth);
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t key = 0; key < kKeysOfStates; ++key) {
    for (std::int64_t i = 0; i < kOfEachKey; ++i) {
      const std::int64_t ours = key * kOfEachKey + i;
      const std::int64_t theirs = i * kKeysOfStates + key;
      EXPECT_FLOAT_EQ(a[at(theirs)], -std::exp(rates[at(ours)]));
      EXPECT_EQ(beta[at(theirs * kHidden + 5)], strengths[at(ours * kHidden + 5)]);
      for (std::int64_t channel = 0; channel < kWidth; ++channel) {
        const std::int64_t to = theirs * kWidth + channel, from = ours * kWidth + channel;
        const std::int64_t columns = kKeysOfStates * kOfEachKey * kWidth;
        EXPECT_EQ(out[at(7 * columns + to)], outputs[at(7 * columns + from)]);
        const std::int64_t values = 2 * kKeysOfStates * kWidth;  // after queries and keys
        EXPECT_EQ(conv[at((values + to) * 4 + 1)], filters[at(from * 4 + 1)]);
      }
    }
  }
}

// Norms of the rule have gains as they are, the others around 1.
TEST_F(GgufOfStates, HasGainsOfNorms) {
  GgufSource source(files_.write(tiled()));
  EXPECT_EQ(source.place("layers.0.attention_norm.weight").transform, GgufTransform::kGain);
  EXPECT_EQ(source.place("layers.3.attention.key_norm.weight").transform, GgufTransform::kGain);
  EXPECT_EQ(source.place("layers.0.delta.norm.weight").transform, GgufTransform::kNone);
}

// Codes of the output, whose columns are in another order, are those of the canonical rows.
TEST_F(GgufOfStates, GivesTheCodesOfWholeHeads) {
  const fs::path path = folder("qwen3.5", 64);
  HfSource original(path);
  GgufSource source(files_.write(path, GgmlType::kQ80));
  const CodeFormat format{Quantization::kQ80, 32};
  constexpr std::int64_t kColumns = kKeysOfStates * kOfEachKey * 64;
  for (const auto& [name, columns] : {std::pair<std::string, std::int64_t>{"output", kColumns},
                                      {"value", 64},
                                      {"gate", 64},
                                      {"decay", 64}}) {
    const std::string weight = fmt::format("layers.1.delta.{}.weight", name);
    ASSERT_EQ(source.stored_format(weight), format) << name;
    const auto tensors = original.tensors(TensorKind::kWeight);
    const std::vector<float> values = floats_of(original, tensor_named(tensors, weight));
    const auto blocks = static_cast<std::size_t>(columns / 32);
    for (std::int64_t row = 0; row < std::ssize(values) / columns; ++row) {
      // A part that ends within a head, and the rest.
      std::vector<std::byte> wanted(blocks * 34), got(blocks * 34);
      encode_row(format,
                 std::span(values).subspan(static_cast<std::size_t>(row * columns),
                                           static_cast<std::size_t>(columns)),
                 {.codes = wanted.data(), .scales = wanted.data() + columns}, "x");
      std::byte* const scales = got.data() + columns;
      const std::int64_t first = columns - 32;
      source.read_codes(weight, {row, 0, first}, {.codes = got.data(), .scales = scales});
      source.read_codes(weight, {row, first, 32},
                        {.codes = got.data() + first, .scales = scales + 2 * (blocks - 1)});
      ASSERT_EQ(got, wanted) << name << " " << row;
    }
  }
}

// A block of 256 columns in the file has heads that are not next to each other in Piton.
TEST_F(GgufOfStates, GivesNoCodesOfPartsOfBlocks) {
  const auto widen = [](Json& config) { config["hidden_size"] = 256; };
  const std::string output = "layers.0.delta.output.weight";
  GgufSource narrow(files_.write(folder("qwen3.5", 128, widen), GgmlType::kQ4K));
  EXPECT_EQ(narrow.stored_type(output), GgmlType::kQ4K);
  EXPECT_EQ(narrow.stored_format(output), std::nullopt);
  EXPECT_TRUE(narrow.stored_format("layers.0.delta.query.weight").has_value());
  GgufSource next(files_.write(folder("qwen3-next", 128, widen), GgmlType::kQ4K));
  EXPECT_TRUE(next.stored_format(output).has_value());
}

TEST_F(GgufOfStates, SaysItsKeys) {
  HfSource original(test::golden_folder("qwen3.5-moe"));
  const GgufDescription description = describe_gguf(original.model(), "qwen3_5_moe_text", "x");
  const auto key = [&](const std::string& name) {
    const auto found = std::ranges::find(description.entries, "qwen35moe." + name, &GgufEntry::key);
    return found == description.entries.end() ? -1 : found->value.integer();
  };
  EXPECT_EQ(key("ssm.conv_kernel"), 4);
  EXPECT_EQ(key("ssm.state_size"), 6);
  EXPECT_EQ(key("ssm.group_count"), 2);
  EXPECT_EQ(key("ssm.time_step_rank"), 6);
  EXPECT_EQ(key("ssm.inner_size"), 36);
  EXPECT_EQ(key("full_attention_interval"), 2);
  EXPECT_EQ(key("expert_shared_feed_forward_length"), 12);
  EXPECT_THAT(description.shapes.at("blk.1.attn_q.weight"), testing::ElementsAre(128, 32));
  EXPECT_THAT(description.shapes.at("blk.0.attn_qkv.weight"), testing::ElementsAre(60, 32));
  EXPECT_TRUE(description.shapes.contains("blk.0.post_attention_norm.weight"));
  // Another family's files of the same model.
  const GgufDescription next = describe_gguf(original.model(), "qwen3_next", "x");
  EXPECT_EQ(next.architecture, "qwen3next");
  EXPECT_THAT(next.shapes.at("blk.0.ssm_ba.weight"), testing::ElementsAre(12, 32));
}

TEST_F(GgufOfStates, WhatLlamaCppDoesNotHaveIsRefused) {
  EXPECT_THAT(message_of(Fault::kData, [&] { files_.write(test::golden_folder("qwen3.5")); }),
              HasSubstr("as \"qwen35\": llama.cpp has values of the gated delta rule as wide as "
                        "keys, and these have 7 and 6 channels; convert it to another format"));
  const fs::path path =
      folder("qwen3.5", 16, [](Json& config) { config["attention_bias"] = true; });
  EXPECT_THAT(message_of(Fault::kData, [&] { files_.write(path); }),
              HasSubstr("as \"qwen35\": there is no word for "));
}

TEST_F(GgufOfStates, KeysThatDisagreeAreRefused) {
  const auto without = [&](const std::string& key) {
    return refusal([&](GgufHeader& header) { erase_entry(header, "qwen35." + key); });
  };
  const auto with = [&](const std::string& key, const GgufValue& value) {
    return refusal([&](GgufHeader& header) { set_entry(header, "qwen35." + key, value); });
  };
  for (const char* key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
                          "ssm.time_step_rank", "ssm.inner_size"}) {
    EXPECT_THAT(without(key), HasSubstr(fmt::format("qwen35.{}: got nothing, wanted a positive "
                                                    "integer below 2^31",
                                                    key)));
  }
  EXPECT_THAT(with("ssm.inner_size", GgufValue::u32(25)),
              HasSubstr("qwen35.ssm.inner_size: got 25, wanted 48, ssm.time_step_rank times "
                        "ssm.state_size"));
  EXPECT_THAT(with("ssm.group_count", GgufValue::u32(4)),
              HasSubstr("qwen35.ssm.time_step_rank: got 6, wanted a multiple of ssm.group_count, "
                        "which is 4"));
  EXPECT_THAT(with("ssm.state_size", GgufValue::u32(1 << 30)),
              HasSubstr("qwen35.ssm.state_size: got 1073741824, wanted at most 32768"));
  EXPECT_THAT(with("ssm.conv_kernel", GgufValue::u32(5)),
              HasSubstr("blk.0.ssm_conv1d.weight is [80, 4], the keys say [80, 5]"));
  EXPECT_THAT(with("ssm.conv_kernel", GgufValue::u32(256)),
              HasSubstr("describes a model that cannot be: --linear-conv-kernel-dim: got 256"));
  EXPECT_THAT(with("full_attention_interval", GgufValue::u32(2)), HasSubstr("missing tensors"));
}

TEST_F(GgufOfStates, LayersWithAttentionAreAtEqualDistances) {
  const auto with = [&](std::vector<std::int32_t> flags) {
    return [flags](GgufHeader& header) {
      erase_entry(header, "qwen35.full_attention_interval");
      set_entry(header, "qwen35.attention.recurrent_layers",
                GgufValue::numbers(std::span<const std::int32_t>(flags)));
    };
  };
  const fs::path path = files_.write(tiled());
  files_.edit(path, with({1, 1, 1, 0}));
  EXPECT_EQ(GgufSource(path).model().delta->attention_every, 4);
  EXPECT_THAT(refusal(with({1, 0, 0, 1})),
              HasSubstr("qwen35.attention.recurrent_layers: got a list, wanted layers with "
                        "attention in equal distances"));
  EXPECT_THAT(refusal(with({1, 1, 1})),
              HasSubstr("qwen35.attention.recurrent_layers: got a list, wanted a flag for each "
                        "layer"));
}

TEST_F(GgufOfStates, EveryPairOfChannelsTurnsByThePositionInTheText) {
  const fs::path path = files_.write(tiled());
  const auto with = [](std::vector<std::int32_t> sections) {
    return [sections](GgufHeader& header) {
      set_entry(header, "qwen35.rope.dimension_sections",
                GgufValue::numbers(std::span<const std::int32_t>(sections)));
    };
  };
  const std::string wanted = "four numbers, by which each pair of rotated channels turns";
  for (const auto& sections :
       {std::vector<std::int32_t>{0, 0, 0, 0}, {11, 0, 10, 0}, {1, 1, 0}, {-1, 1, 1, 0}})
    EXPECT_THAT(refusal(with(sections)), HasSubstr(wanted));
  EXPECT_THAT(
      refusal([](GgufHeader& header) { erase_entry(header, "qwen35.rope.dimension_sections"); }),
      HasSubstr("qwen35.rope.dimension_sections: got nothing, wanted " + wanted));
  files_.edit(path, with({11, 11, 10, 0}));
  EXPECT_EQ(GgufSource(path).model().rotary_channels(), 4);
}

// Layers that predict later tokens are behind the others.
TEST_F(GgufOfStates, LayersThatPredictLaterTokensAreLeftOut) {
  const fs::path path = files_.write(tiled());
  files_.edit(path, [](GgufHeader& header) {
    set_entry(header, "qwen35.block_count", GgufValue::u32(5));
    set_entry(header, "qwen35.nextn_predict_layers", GgufValue::u32(1));
    const GgufTensor& last = header.tensors.back();
    GgufTensor later{.name = "blk.4.nextn.eh_proj.weight",
                     .shape = {64, 128},
                     .offset = aligned(last.offset + last.bytes(), header.alignment)};
    header.tensors.push_back(std::move(later));
  });
  GgufSource source(path);
  EXPECT_EQ(source.model().layers, 4);
  HfSource original(tiled());
  AsGgufHolds held(original, source);
  test::expect_equal(source, held);
}

// Files hold -exp(rate).
TEST_F(GgufOfStates, RatesThatAreNotNegativeAreRefused) {
  const fs::path path = files_.write(tiled());
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
                         [&] { floats_of(source, tensor_named(tensors, "layers.2.delta.rate")); }),
              HasSubstr("blk.2.ssm_a: got 0.5, wanted numbers below 0: -exp(rate)"));
}

}  // namespace
}  // namespace piton
