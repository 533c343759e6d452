// Latent attention, and layers that predict later tokens, in Megatron's files: those of
// Megatron-core's own modules (tools/oracle/megatron_latents.py), those that are written, and what
// is refused.
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

const fs::path kGoldenLatents = fs::path(PITON_SOURCE_DIR) / "tests/golden/megatron/latents";
constexpr const char* kRankFile = "model_optim_rng.pt";

TEST(Latents, OfMegatronCoreHaveTheWeightsOfOneProcess) {
  for (const char* name :
       {"v3/divided", "v3/transformer", "v3/dist", "v2/divided", "v2/transformer"}) {
    SCOPED_TRACE(name);
    MegatronSource wanted(kGoldenLatents / fs::path(name).parent_path() / "plain");
    MegatronSource got(kGoldenLatents / name);
    EXPECT_EQ(got.model(), wanted.model());
    expect_same(wanted, got);
  }
}

TEST(Latents, OfMegatronCoreAreTheModelOfItsArguments) {
  const ModelConfig v3 = MegatronSource(kGoldenLatents / "v3/plain").model();
  const LatentFacts small{.query_rank = 12, .rank = 8, .own = 6, .turned = 4, .value = 5};
  EXPECT_EQ(v3.latent, small);
  EXPECT_EQ(v3.head_size, 10);
  EXPECT_TRUE(v3.head_norms);
  EXPECT_TRUE(v3.rotary_pairs);
  EXPECT_EQ(v3.family, "deepseek_v3");
  EXPECT_EQ(v3.mtp_layers, 1);
  EXPECT_EQ(v3.mtp_loss_factor, 0.3);
  const RotaryScaling yarn{.kind = RotaryScaling::Kind::kYarn,
                           .factor = 4,
                           .original_positions = 16,
                           .fast = 8,
                           .numerator = 0.7,
                           .denominator = 0.9};
  EXPECT_EQ(v3.rotary_scaling, yarn);
  const ModelConfig v2 = MegatronSource(kGoldenLatents / "v2/plain").model();
  EXPECT_EQ(v2.latent->query_rank, 0);
  EXPECT_EQ(v2.rotary_scaling, RotaryScaling());
  EXPECT_EQ(v2.family, "deepseek_v2");
}

// Two tensor ranks; each division has the tensors of its modules.
TEST(Latents, AreWrittenInEveryDivision) {
  for (const char* name : {"deepseek-v2", "deepseek-v3"}) {
    HfSource wanted(fs::path(PITON_SOURCE_DIR) / "tests/golden/huggingface" / name);
    ModelConfig model = wanted.model();
    ASSERT_TRUE(model.latent);
    for (const MegatronTree tree : {MegatronTree::kCore, MegatronTree::kTransformer}) {
      SCOPED_TRACE(fmt::format("{} {}", name, static_cast<int>(tree)));
      const TempFolder dir;
      const bool split = tree == MegatronTree::kCore;
      MegatronWriteOptions options{.layout = {.tensor = 2, .split_latents = split}, .tree = tree};
      options.layout.padded_vocabulary = megatron_padded_vocabulary(model.vocabulary, 16, 2);
      options.layout.check(model);
      write_megatron(dir.path(), wanted, model, options);
      MegatronSource got(dir.path());
      expect_same(wanted, got);
      EXPECT_EQ(got.model().latent, model.latent);
      const TorchFile file(dir / "release/mp_rank_01" / kRankFile);
      const PickleValue& weights = *file.root().find("model");
      const std::string attention = "decoder.layers.0.self_attention.";
      EXPECT_NE(weights.find("decoder.layers.0.input_layernorm.weight"), nullptr);
      const char* norm = split ? "kv_layernorm.weight" : "linear_kv_up_proj.layer_norm_weight";
      EXPECT_NE(weights.find((attention + norm).c_str()), nullptr);
      const std::string down = attention + "linear_kv_down_proj.weight";
      const PickleValue* tensor = weights.find(down.c_str());
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(file.tensor(*tensor, down).shape[0],
                (model.latent->rank + model.latent->turned) / (split ? 2 : 1));
    }
  }
}

TEST(Latents, AreWrittenAsTorchDist) {
  MegatronSource wanted(kGoldenLatents / "v3/plain");
  for (const MegatronTree tree : {MegatronTree::kCore, MegatronTree::kTransformer}) {
    const TempFolder dir;
    MegatronWriteOptions options{.form = MegatronForm::kTorchDist, .tree = tree};
    options.layout.padded_vocabulary = wanted.model().vocabulary;
    write_megatron(dir.path(), wanted, wanted.model(), options);
    MegatronSource got(dir.path());
    expect_same(wanted, got);
    const std::string names = read_text_file(dir / "release/.metadata");
    EXPECT_THAT(names, HasSubstr("decoder.layers.0.input_layernorm.weight"));
    EXPECT_THAT(names, HasSubstr("mtp.layers.0.eh_proj.weight"));
    EXPECT_THAT(names, HasSubstr("mtp.layers.0.transformer_layer.mlp.experts.experts.linear_fc1"));
    const bool own = tree == MegatronTree::kCore;
    EXPECT_THAT(names,
                HasSubstr(own ? "layers.0.self_attention.q_layernorm.weight"
                              : "layers.0.self_attention.linear_q_up_proj.layer_norm_weight"));
    EXPECT_THAT(names, HasSubstr(own ? "layers.0.pre_mlp_layernorm.weight"
                                     : "layers.0.mlp.linear_fc1.layer_norm_weight"));
  }
}

TEST(Latents, OfOtherRotaryPositionsAreRefused) {
  const TempFolder dir;
  const fs::path folder = dir / "v3";
  const auto refusal = [&](const FileEdits& edits) {
    fs::remove_all(folder);
    fs::copy(kGoldenLatents / "v3/plain", folder, fs::copy_options::recursive);
    EditedFile(folder / "mp_rank_00" / kRankFile, edits);
    return message_of(Fault::kData, [&] { MegatronSource{folder}; });
  };
  EXPECT_THAT(refusal({.dropped = {"args/mscale_all_dim"}}),
              HasSubstr("argument mscale: got 0.7, wanted 1 without mscale_all_dim"));
  EXPECT_THAT(refusal({.dropped = {"args/kv_lora_rank"}}),
              HasSubstr("argument kv_lora_rank: got nothing, wanted a positive integer"));
  EXPECT_THAT(refusal({.numbers = {{"args/kv_lora_rank", 7}}}),
              HasSubstr("layers.0.kv_down.weight is [12, 16], the arguments say [11, 16]"));
}

TEST(Latents, ThatAreSplitNeedADivisor) {
  ModelConfig model = MegatronSource(kGoldenLatents / "v3/plain").model();
  model.latent->rank = 9;
  MegatronLayout layout{.tensor = 2, .padded_vocabulary = 64};
  EXPECT_EQ(message_of(Fault::kUsage, [&] { layout.check(model); }),
            "--target-tensor-parallel-size: got 2, wanted a divisor of the 13 channels of the "
            "latents (--kv-lora-rank, --qk-pos-emb-head-dim)");
  layout.split_latents = false;
  layout.check(model);
}

}  // namespace
}  // namespace piton
