// adapter_config.json: what it says of each module, and what is refused.
#include "adapters/peft_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

TEST(PeftConfig, GivesTheRankAndTheScaleOfEachModule) {
  const PeftConfig config = parse_peft_config(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "lora_dropout": 0.25,
          "rank_pattern": {"v_proj": 4, "^model.layers.0.mlp.up_proj": 8},
          "alpha_pattern": {"layers.1.self_attn.q_proj": 2.5}})",
      "c");
  EXPECT_EQ(config.dropout, 0.25);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.q_proj"), 16);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.v_proj"), 4);
  EXPECT_EQ(config.rank_of("model.layers.0.self_attn.other_v_proj"), 16);
  EXPECT_EQ(config.rank_of("model.layers.0.mlp.up_proj"), 8);
  EXPECT_EQ(config.rank_of("model.layers.1.mlp.up_proj"), 16);
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.q_proj"), 2);
  EXPECT_EQ(config.scale_of("model.layers.1.self_attn.q_proj"), 2.5 / 16);
  EXPECT_EQ(config.scale_of("model.layers.1.self_attn.v_proj"), 8);
  const PeftConfig stable = parse_peft_config(
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "use_rslora": true})", "");
  EXPECT_EQ(stable.scale_of("any"), 3 / std::sqrt(2.0));
  EXPECT_FALSE(stable.magnitudes);
  EXPECT_TRUE(parse_peft_config(R"({"peft_type": "LORA", "use_dora": true})", "").magnitudes);
}

TEST(PeftConfig, RefusesWhatPitonDoesNotCompute) {
  const auto message = [](const std::string& key) {
    return message_of(Fault::kData, [&] {
      parse_peft_config(R"({"peft_type": "LORA", )" + key + "}", "folder/adapter_config.json");
    });
  };
  EXPECT_THAT(message(R"("use_dora": 1)"), HasSubstr("use_dora"));
  EXPECT_THAT(message(R"("bias": "all")"), HasSubstr("bias"));
  EXPECT_THAT(message(R"("layer_replication": [[0, 4]])"), HasSubstr("layer_replication"));
  EXPECT_THAT(message(R"("init_lora_weights": "pissa_niter_4")"), HasSubstr("init_lora_weights"));
  EXPECT_THAT(message(R"("r": 0)"), HasSubstr("r"));
  EXPECT_THAT(message(R"("lora_alpha": 0)"), HasSubstr("lora_alpha"));
  EXPECT_THAT(message(R"("lora_dropout": 1)"), HasSubstr("lora_dropout"));
  EXPECT_THAT(message(R"("rank_pattern": {".*proj": 3})"), HasSubstr("regular expressions"));
  EXPECT_THAT(message(R"("rank_pattern": {"q_proj": "x"})"), HasSubstr("q_proj"));
  EXPECT_THAT(message_of(Fault::kData, [] { parse_peft_config(R"({"peft_type": "IA3"})", "f"); }),
              HasSubstr("peft_type"));
  EXPECT_THAT(message_of(Fault::kData, [] { parse_peft_config("{", "f"); }), HasSubstr("f"));
}

}  // namespace
}  // namespace piton
