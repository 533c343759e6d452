// Latent attention and experts in the files of MindSpeed-LLM (tools/oracle/mindspeed_latents.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "megatron/megatron_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "unit/megatron/compare_sources.h"
#include "unit/megatron/edited_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kTests = fs::path(PITON_SOURCE_DIR) / "tests/golden";
const fs::path kMindSpeed = kTests / "megatron/mindspeed";
constexpr const char* kFirstFile = "iter_0000001/mp_rank_00/model_optim_rng.pt";

class MindSpeedLatents : public testing::Test {
 protected:
  // A copy whose file of tensor rank 0 is edited.
  std::string refusal(const char* name, const char* file, const FileEdits& edits) {
    const fs::path folder = dir_ / "edited";
    fs::remove_all(folder);
    fs::copy(kMindSpeed / name, folder, fs::copy_options::recursive);
    EditedFile(folder / file, edits);
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  }

  TempFolder dir_;
};

TEST_F(MindSpeedLatents, HaveTheWeightsAndTheModelOfTheFolder) {
  for (const auto& [name, folder] :
       {std::pair{"v3/new", "deepseek-v3"}, {"v3/old", "deepseek-v3"}, {"v2/old", "deepseek-v2"}}) {
    SCOPED_TRACE(name);
    HfSource wanted(kTests / "huggingface" / folder);
    MegatronSource got(kMindSpeed / name, {.vocabulary = wanted.model().vocabulary});
    expect_same(wanted, got);
    const ModelConfig model = got.model();
    EXPECT_EQ(model.latent, wanted.model().latent);
    EXPECT_EQ(model.rotary_scaling, wanted.model().rotary_scaling);
    ASSERT_TRUE(model.experts);
    const ExpertFacts& facts = *model.experts;
    const ExpertFacts& said = *wanted.model().experts;
    EXPECT_EQ(facts.normalized, said.normalized);
    EXPECT_EQ(facts.weight_factor, said.weight_factor);
    EXPECT_EQ(facts.choice_bias, said.choice_bias);
    EXPECT_EQ(facts.groups.chosen, said.groups.chosen);
    EXPECT_EQ(facts.groups.count, said.groups.count);
    EXPECT_EQ(facts.shared_ffn_hidden, said.shared_ffn_hidden);
    EXPECT_EQ(facts.dense_layers, said.dense_layers);
    EXPECT_EQ(model.expert_ffn_hidden(), wanted.model().expert_ffn_hidden());
  }
}

TEST_F(MindSpeedLatents, AreWrittenAndReadInEveryForm) {
  for (const char* name : {"deepseek-v2", "deepseek-v3"}) {
    HfSource wanted(kTests / "huggingface" / name);
    for (const bool apart : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", name, apart));
      const TempFolder dir;
      MegatronWriteOptions options{
          .layout = {.tensor = 2, .expert = 2, .joined_latents = true, .apart_heads = apart},
          .tree = MegatronTree::kCore};
      options.layout.padded_vocabulary =
          megatron_padded_vocabulary(wanted.model().vocabulary, 16, 2);
      options.layout.check(wanted.model());
      write_megatron(dir.path(), wanted, wanted.model(), options);
      MegatronSource got(dir.path());
      expect_same(wanted, got);
      const TorchFile file(dir / "release/mp_rank_01_001/model_optim_rng.pt");
      const PickleValue& weights = *file.root().find("model");
      const std::string at = "decoder.layers.0.self_attention.";
      EXPECT_NE(weights.find((at + "linear_qkv.weight").c_str()), nullptr);
      const char* end = apart ? "linear_kv_nope.weight" : "linear_kv_up_proj.weight";
      EXPECT_NE(weights.find((at + end).c_str()), nullptr);
    }
  }
}

TEST_F(MindSpeedLatents, ThatContradictTheirArgumentsAreRefused) {
  EXPECT_THAT(
      refusal("v3/old", kFirstFile, {.numbers = {{"args/num_experts", 20}}}),
      HasSubstr("layers.1.grouped.0.fc1.weight is [32, 144] on one of 1 expert ranks, which "
                "20 experts do not divide; is num_experts that of another model?"));
  EXPECT_THAT(refusal("v3/old", kFirstFile, {.numbers = {{"args/kv_lora_rank", 19}}}),
              HasSubstr("layers.0.qkv.weight is [40, 32], the arguments say [39, 32]"));
  EXPECT_THAT(refusal("v2/old", kFirstFile, {.renamed = {{"args/qk_nope_head_dim", "unknown"}}}),
              HasSubstr("argument qk_head_dim: got nothing, wanted a positive integer"));
  EXPECT_THAT(refusal("v2/old", kFirstFile,
                      {.dropped = {"model/decoder.layers.0.self_attention.linear_v.weight"}}),
              HasSubstr("missing tensors (1): layers.0.v_up.weight"));
}

// As Megatron-core's GroupedMLP.
TEST_F(MindSpeedLatents, OfExpertsInOneTensorHaveNoOptimizerHere) {
  const fs::path folder = dir_ / "v3";
  fs::copy(kMindSpeed / "v3/old", folder, fs::copy_options::recursive);
  for (const char* rank : {"mp_rank_00", "mp_rank_01"}) {
    EditedFile(folder / "iter_0000001" / rank / "model_optim_rng.pt",
               {.dropped = {"args/moe_router_enable_expert_bias",
                            "model/decoder.layers.1.mlp.router.expert_bias"},
                .renamed = {{"iteration", "optimizer"}},
                .lists = {{"iteration", {}}}});
  }
  MegatronSource got(folder);
  EXPECT_THAT(message_of(Fault::kData, [&] { got.open_optimizer(); }),
              HasSubstr("(GroupedMLP) is not read yet; --no-load-optim continues with a new one"));
}

TEST_F(MindSpeedLatents, OfWhichAnExpertRankIsMissingAreNamed) {
  const fs::path folder = dir_ / "v3";
  fs::copy(kMindSpeed / "v3/new", folder, fs::copy_options::recursive);
  fs::remove_all(folder / "iter_0000001/mp_rank_01_000");
  EXPECT_THAT(message_of(Fault::kData, [&] { MegatronSource{folder}; }),
              HasSubstr("1 of 4 ranks are missing: mp_rank_01_000; copy them too"));
}

// As converters write it: two files with all layers are of expert ranks, not of stages.
TEST_F(MindSpeedLatents, WithoutArgumentsAreOfExpertRanks) {
  HfSource wanted(kTests / "huggingface/deepseek-v3");
  const ModelConfig model = wanted.model();
  MegatronWriteOptions options{.layout = {.expert = 2, .joined_latents = true},
                               .tree = MegatronTree::kCore};
  options.layout.padded_vocabulary = model.vocabulary;
  write_megatron(dir_.path(), wanted, model, options);
  for (const char* rank : {"mp_rank_00_000", "mp_rank_00_001"}) {
    EditedFile(dir_ / "release" / rank / "model_optim_rng.pt",
               {.renamed = {{"model_args", "words"}}});
  }
  MegatronSource got(dir_.path(), {.model = [&](std::int64_t) { return model; }});
  expect_same(wanted, got);
  EXPECT_EQ(got.layout().expert, 2);
}

}  // namespace
}  // namespace piton
