// Flags of MindSpeed-LLM that describe a model, as options.
#include "cli/compatibility/mindspeed_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Options after the flags of a script.
struct Script {
  PretrainOptions options;
  OptionSet set;
  MegatronFlags flags;
  std::vector<std::string> notes;

  explicit Script(const std::vector<std::string>& words) {
    options.add_to(set);
    set.set_foreign(&flags);
    set.parse(words);
    read_mindspeed_flags(flags, {set, options.model, options.parallel}, notes);
  }
};

std::vector<std::string> with_experts(const std::vector<std::string>& more) {
  std::vector<std::string> all{"--model", "llama-tiny",        "--num-experts",
                               "8",       "--moe-router-topk", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

ExpertFacts facts_of(const Script& script) { return *script.options.model.resolve(1000).experts; }

ExpertFacts facts_of(const std::vector<std::string>& more) {
  return facts_of(Script(with_experts(more)));
}

std::string refusal(const std::vector<std::string>& more) {
  return message_of(Fault::kUsage, [&] { facts_of(more); });
}

const std::string kType = "--moe-router-load-balancing-type";

// DeepSeek-V3: scores of a sigmoid add up to 1, times the factor; the bias is of the choice alone.
TEST(MindSpeedFlags, OfDeepSeekV3) {
  const ExpertFacts facts =
      facts_of({kType, "noaux_tc", "--n-group", "4", "--topk-group", "2", "--routed-scaling-factor",
                "2.5", "--seq-aux", "--norm-topk-prob", "--moe-router-score-function", "sigmoid",
                "--moe-router-enable-expert-bias", "--router-gating-in-fp32",
                "--moe-aux-loss-coeff", "0.0001"});
  EXPECT_TRUE(facts.normalized && facts.choice_bias && facts.balances_samples);
  EXPECT_EQ(facts.score, ScoreKind::kSigmoid);
  EXPECT_EQ(facts.weight_factor, 2.5);
  EXPECT_EQ(facts.balance_factor, 0.0001);
  EXPECT_EQ(facts.groups, (ExpertGroups{.count = 4, .chosen = 2, .largest = 1}));
  const Script without(with_experts({kType, "noaux_tc", "--moe-aux-loss-coeff", "0.1"}));
  EXPECT_EQ(facts_of(without).balance_factor, 0);
  EXPECT_THAT(
      without.notes,
      ElementsAre("--moe-aux-loss-coeff: has no effect with --moe-router-load-balancing-type "
                  "noaux_tc, as in MindSpeed-LLM"));
  EXPECT_TRUE(facts_of({kType, "none", "--seq-aux", "--moe-aux-loss-coeff", "1"}).balances_samples);
  EXPECT_THAT(refusal({kType, "none", "--moe-aux-loss-coeff", "1"}), HasSubstr("got none with"));
}

// DeepSeek-V2: groups by their best expert; weights among all experts times the factor, or shares
// without it.
TEST(MindSpeedFlags, OfDeepSeekV2) {
  const std::vector<std::string> limited{kType,
                                         "group_limited_greedy",
                                         "--expert-model-parallel-size",
                                         "4",
                                         "--topk-group",
                                         "2",
                                         "--routed-scaling-factor",
                                         "16.0",
                                         "--moe-aux-loss-coeff",
                                         "0.003"};
  const Script script(with_experts(limited));
  const ExpertFacts facts = facts_of(script);
  EXPECT_FALSE(facts.normalized);
  EXPECT_EQ(facts.weight_factor, 16);
  EXPECT_EQ(facts.groups, (ExpertGroups{.count = 4, .chosen = 2, .largest = 1}));
  EXPECT_EQ(facts.balance_factor, 0.003);
  EXPECT_FALSE(facts.balances_samples);
  EXPECT_THAT(script.notes,
              ElementsAre(HasSubstr("--moe-router-num-groups 4 gives other layouts")));
  const auto more = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = limited;
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  };
  EXPECT_TRUE(facts_of(more({"--seq-aux"})).balances_samples);
  EXPECT_TRUE(facts_of(more({"--norm-topk-prob"})).normalized);
  EXPECT_EQ(facts_of(more({"--norm-topk-prob"})).weight_factor, 1);
  EXPECT_THAT(refusal(more({"--moe-router-score-function", "sigmoid"})),
              HasSubstr("group_limited_greedy takes the softmax"));
  EXPECT_THAT(refusal(more({"--moe-router-group-topk", "3"})),
              HasSubstr("--moe-router-group-topk and --topk-group: two names of one option, got 3 "
                        "and 2; give one"));
  EXPECT_THAT(refusal({kType, "group_limited_greedy"}), HasSubstr("needs --moe-router-group-topk"));
  EXPECT_THAT(message_of(Fault::kUsage,
                         [] {
                           Script({"--moe-device-level-aux-loss-coeff", "0.05"});
                         }),
              HasSubstr("the balance in the loss is of experts"));
}

TEST(MindSpeedFlags, OfWeightsAmongAllExperts) {
  for (const char* type : {"softmax_topk", "pai_megatron_aux_loss"}) {
    const Script script(with_experts({kType, type, "--topk-group", "1", "--routed-scaling-factor",
                                      "2", "--moe-aux-loss-coeff", "0.5", "--norm-topk-prob"}));
    const ExpertFacts facts = facts_of(script);
    EXPECT_FALSE(facts.normalized) << type;
    EXPECT_EQ(facts.weight_factor, 1) << type;
    EXPECT_EQ(facts.groups, ExpertGroups{}) << type;
    EXPECT_EQ(facts.balance_factor, type == std::string("softmax_topk") ? 0 : 0.5);
    EXPECT_EQ(script.notes.size(), type == std::string("softmax_topk") ? 3U : 2U);
  }
  EXPECT_THAT(refusal({kType, "sparsemixer_topk"}), HasSubstr("wanted one of aux_loss, "));
}

TEST(MindSpeedFlags, OfMegatronsBalanceChangeItOnlyAsMindSpeedDoes) {
  const Script script(with_experts(
      {kType, "aux_loss", "--topk-group", "1", "--seq-aux", "--routed-scaling-factor", "1.0"}));
  EXPECT_EQ(facts_of(script), facts_of({}));
  EXPECT_EQ(script.notes.size(), 2U);
  EXPECT_FALSE(facts_of({"--moe-router-pre-softmax"}).normalized);
  EXPECT_TRUE(facts_of({"--moe-router-pre-softmax", "--norm-topk-prob"}).normalized);
  // All options of a stored run are given, with their defaults.
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  set.read_toml_text("no-norm-topk-prob = false\nmoe-router-pre-softmax = true\nnum-experts = 4\n",
                     "config.toml");
  std::vector<std::string> notes;
  read_mindspeed_flags(MegatronFlags(), {set, options.model, options.parallel}, notes);
  EXPECT_TRUE(options.model.mlp.weights_before_choice);
  EXPECT_THAT(notes, IsEmpty());
}

TEST(MindSpeedFlags, OfLayersAreTakenWhereOtherFlagsDescribeThem) {
  const auto layers = [](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"--num-layers", "2", "--spec",
                                 "mindspeed_llm.tasks.models.spec." + name, "layer_spec"};
    all.insert(all.end(), more.begin(), more.end());
    return Script(all).notes;
  };
  EXPECT_THAT(layers("qwen3_spec"),
              ElementsAre("--spec: no meaning here: other flags describe the layers"));
  EXPECT_EQ(layers("gemma2_spec", {"--post-norm"}).size(), 1U);
  EXPECT_EQ(layers("deepseek_spec", {"--multi-latent-attention"}).size(), 1U);
  EXPECT_THAT(message_of(Fault::kUsage, [&] { layers("deepseek_spec"); }),
              HasSubstr("the layers of deepseek_spec are those of --multi-latent-attention"));
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { layers("qwen3_next_spec"); }),
      HasSubstr("--spec: got \"mindspeed_llm.tasks.models.spec.qwen3_next_spec layer_spec\""));
}

}  // namespace
}  // namespace piton::cli
