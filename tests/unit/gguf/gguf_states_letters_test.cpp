// Nemotron-H in GGUF files, where each letter of its pattern is a block. That llama.cpp computes
// what Piton does is held by tools/oracle/gguf_files.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "huggingface/config_keys.h"
#include "unit/gguf/written_gguf.h"

namespace piton {
namespace {

using test::entry_of;
using test::golden_folder;
using test::set_entry;
using testing::ElementsAre;
using testing::HasSubstr;

// The golden model with experts, of these letters.
ModelConfig with_letters(const std::string& pattern) {
  ModelConfig model = HfSource(golden_folder("nemotron-h-moe")).model();
  StateSpaceOptions options = StateSpaceOptions::of(model);
  options.pattern = pattern;
  model.layers = 0;
  options.set_layers(model);
  model.experts->dense_layers.clear();
  options.set_experts(model);
  return model;
}

TEST(GgufOfLetters, OfEveryTypeIsReadAsItWasWritten) {
  test::GgufWorkshop files;
  for (const std::optional<GgmlType> type :
       {std::optional<GgmlType>{}, std::optional(GgmlType::kBF16), std::optional(GgmlType::kQ80),
        std::optional(GgmlType::kQ4K)}) {
    SCOPED_TRACE(type ? piton::name(*type) : "as it is");
    GgufSource source(files.write(golden_folder("nemotron-h"), type));
    HfSource original(golden_folder("nemotron-h"));
    EXPECT_EQ(source.architecture().name, "nemotron_h");
    EXPECT_EQ(source.family(), "nemotron_h");
    EXPECT_EQ(model_difference(model_in_gguf(original.model()), source.model()), "");
    AsGgufHolds held(original, source);
    test::expect_equal(source, held);
  }
}

// M-M*--M: attention and its MLP are two blocks.
TEST(GgufOfLetters, EachIsABlock) {
  const GgufDescription blocks =
      describe_gguf(HfSource(golden_folder("nemotron-h")).model(), "nemotron_h", "x");
  EXPECT_EQ(entry_of(blocks, "block_count")->integer(), 7);
  EXPECT_THAT(entry_of(blocks, "feed_forward_length")->integers(),
              ElementsAre(0, 53, 0, 0, 53, 53, 0));
  EXPECT_THAT(entry_of(blocks, "attention.head_count_kv")->integers(),
              ElementsAre(0, 0, 0, 2, 0, 0, 0));
  for (const char* tensor : {"blk.0.ssm_in.weight", "blk.1.attn_norm.weight", "blk.1.ffn_up.weight",
                             "blk.3.attn_q.weight", "blk.5.ffn_down.weight", "blk.6.ssm_out.weight",
                             "blk.6.attn_norm.weight"})
    EXPECT_TRUE(blocks.shapes.contains(tensor)) << tensor;
}

TEST(GgufOfLetters, MayHaveTheEpsilonOfLayerNormsAlone) {
  test::GgufWorkshop files;
  const std::filesystem::path path = files.write(golden_folder("nemotron-h"));
  files.edit(path, [](GgufHeader& header) {
    test::erase_entry(header, "nemotron_h.attention.layer_norm_rms_epsilon");
  });
  EXPECT_EQ(GgufSource(path).model().norm_eps,
            GgufSource(files.write(golden_folder("nemotron-h"))).model().norm_eps);
}

TEST(GgufOfLetters, WithExpertsInPlaceOfAllMlpsComeBack) {
  for (const char* pattern : {"MEM*EE", "EM", "*E", "ME*"}) {
    SCOPED_TRACE(pattern);
    const ModelConfig model = with_letters(pattern);
    const GgufDescription description = describe_gguf(model, "nemotron_h", "x");
    EXPECT_EQ(description.architecture, "nemotron_h_moe");
    const ModelConfig read = gguf_model(description, "x");
    EXPECT_EQ(model_difference(model_in_gguf(model), read), "");
    EXPECT_EQ(StateSpaceOptions::of(read).pattern, pattern);
    EXPECT_EQ(read.expert_ffn_hidden(), 14);
  }
}

TEST(GgufOfLetters, WithExpertsNextToMlpsAreRefused) {
  EXPECT_THAT(
      message_of(Fault::kData, [] { describe_gguf(with_letters("ME-*"), "nemotron_h", "x"); }),
      HasSubstr("as \"nemotron_h\": llama.cpp has experts in place of all MLPs there"));
}

TEST(GgufOfLetters, ListsThatDisagreeAreRefused) {
  test::GgufWorkshop files;
  const auto with = [&](const std::string& key, std::vector<std::int32_t> numbers) {
    return files.refusal(golden_folder("nemotron-h"), [&](GgufHeader& header) {
      set_entry(header, "nemotron_h." + key,
                GgufValue::numbers(std::span<const std::int32_t>(numbers)));
    });
  };
  const std::string widths = "feed_forward_length";
  const std::string got = widths + ": got a list, wanted ";
  EXPECT_THAT(with(widths, {0, 53, 0}), HasSubstr(got + "a number for each layer"));
  EXPECT_THAT(with(widths, {0, 53, 0, 0, 52, 53, 0}),
              HasSubstr(got + "the same number in all layers with an MLP, 0 in others"));
  EXPECT_THAT(with(widths, {0, 53, 0, 53, 53, 53, 0}),
              HasSubstr(got + "0 in layers with attention"));
  EXPECT_THAT(with(widths, {53, 53, 0, 0, 53, 53, 0}), HasSubstr("missing tensors"));
  EXPECT_THAT(with("attention.head_count_kv", {0, 0, 2, 2, 0, 0, 0}), HasSubstr("missing tensors"));
  EXPECT_THAT(files.refusal(golden_folder("nemotron-h"),
                            [&](GgufHeader& header) {
                              set_entry(header, "nemotron_h.feed_forward_length",
                                        GgufValue::u32(53));
                            }),
              HasSubstr("feed_forward_length: got 53, wanted a number for each layer"));
}

}  // namespace
}  // namespace piton
