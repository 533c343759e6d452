// What `--recompute-granularity auto` chooses, for runs whose memory and times are made up.
#include "plan/recompute_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/families.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

// 4 layers on each of two stages. The first stage holds two micro-batches, the second one.
RunPlan two_stages() {
  RunPlan plan;
  plan.mesh[Axis::kPipeline] = 2;
  plan.session.model = preset("llama-tiny");
  plan.session.model.layers = 8;
  plan.micro_batches = plan.session.micro_batches = 4;
  return plan;
}

// 10 MiB without activations. A layer keeps 8, of which attention, norms and the gate are 1 each
// and the MLP is 3 with its gate; a whole one keeps 1.
RecomputeProbe made_up(const RunPlan& plan, int rank) {
  const RecomputeRules& rules = plan.session.layout.recompute;
  const bool full = rules.granularity == RecomputeGranularity::kFull;
  const std::int64_t whole = !full         ? 0
                             : rules.block ? std::min<std::int64_t>(rules.layers_on(rank), 4)
                                           : 4;
  const RecomputedParts parts = rules.parts_again();
  const std::int64_t kept =
      8 - parts.attention - parts.norms - (parts.mlp ? 3 : std::int64_t{parts.activation});
  const std::int64_t groups = full && !rules.block ? 4 / rules.layers : whole;
  RecomputeProbe probe{.peak_bytes =
                           (10 + (rank == 0 ? 2 : 1) * ((4 - whole) * kept + groups)) * kMiB};
  const auto add = [&](const char* name, std::int64_t count) {
    if (count > 0) probe.calls.insert_or_assign(name, PlannedCall{.call = Copy{}, .count = count});
  };
  // Two steps of four micro-batches.
  add("attention", 8 * (4 + whole + (4 - whole) * parts.attention));
  add("norm", 8 * (4 + whole + (4 - whole) * parts.norms));
  add("gate", 8 * (4 + whole + (4 - whole) * (parts.activation || parts.mlp)));
  add("products", 8 * (4 + 3 * whole + (4 - whole) * parts.mlp));
  return probe;
}

// One second for each call: a whole layer costs 6, attention, norms and the gate 1 each, the MLP 2.
double one_second(const KernelCall&) { return 1; }

RecomputeChoice chosen(std::int64_t mebibytes) {
  return choose_recompute(two_stages(), mebibytes * kMiB, made_up, one_second);
}

TEST(RecomputeSearch, TakesNothingWhereAllFits) {
  const RecomputeChoice choice = chosen(74);
  EXPECT_EQ(choice.rules.granularity, RecomputeGranularity::kNone);
  EXPECT_THAT(choice.why, HasSubstr("--recompute-granularity none: a rank needs 74.0 MiB of 74.0"));
}

TEST(RecomputeSearch, TakesTheCheapestPartsThatFit) {
  // 10 + 2 x 4 x 7 = 66: any one part; 58: two.
  const RecomputeChoice one = chosen(66);
  EXPECT_EQ(one.rules.granularity, RecomputeGranularity::kSelective);
  EXPECT_EQ(one.rules.parts, RecomputedParts{.norms = true});
  EXPECT_THAT(one.why, HasSubstr("add 16000.0 ms")) << "4 layers of 4 micro-batches";
  EXPECT_EQ(chosen(58).rules.parts, (RecomputedParts{.norms = true, .activation = true}));
}

TEST(RecomputeSearch, TakesAsManyLayersOfEachStageAsItNeeds) {
  // 74 - 2 x 7 n on the first stage, 42 - 7 n on the second.
  RecomputeRules found;
  const ProbeRank no_parts = [](const RunPlan& plan, int rank) {
    RunPlan one = plan;
    one.session.layout.recompute.parts = {};
    if (one.session.layout.recompute.granularity == RecomputeGranularity::kSelective) {
      one.session.layout.recompute.granularity = RecomputeGranularity::kNone;
    }
    return made_up(one, rank);
  };
  const RecomputeChoice choice = choose_recompute(two_stages(), 40 * kMiB, no_parts, one_second);
  EXPECT_THAT(choice.rules.layers_of_stage, ElementsAre(3, 1));
  EXPECT_THAT(choice.why, HasSubstr("--recompute-method custom --recomputation-layer-num 3 1"));
  EXPECT_THAT(choice.why, HasSubstr("a rank needs 35.0 MiB of 40.0 (without 74.0)"));
}

TEST(RecomputeSearch, TakesGroupsWhereNothingElseFitsAndSaysTheLeast) {
  const RecomputeChoice groups = chosen(13);
  EXPECT_FALSE(groups.rules.block);
  EXPECT_EQ(groups.rules.layers, 4);
  EXPECT_THAT(message_of(Fault::kMemory, [] { chosen(11); }),
              HasSubstr("--memory-limit: got 11.0 MiB, wanted at least 12.0, which "
                        "--recompute-granularity full --recompute-method uniform "
                        "--recompute-num-layers 4 needs"));
}

TEST(RecomputeChoice, TravelsAsText) {
  const RecomputeChoice choice{{.granularity = RecomputeGranularity::kFull,
                                .block = true,
                                .layers = 2,
                                .parts = {.attention = true, .mlp = true},
                                .layers_of_stage = {3, 0}},
                               "why\nso"};
  const RecomputeChoice back = decode_choice(encode(choice));
  EXPECT_EQ(flags_of(back.rules), flags_of(choice.rules));
  EXPECT_EQ(back.rules.layers, 2);
  EXPECT_TRUE(back.rules.block);
  EXPECT_EQ(back.why, "why\nso");
  EXPECT_EQ(flags_of(back.rules),
            "--recompute-granularity full --recompute-method custom --recomputation-layer-num 3 0 "
            "--recompute-modules core_attn mlp");
}

}  // namespace
}  // namespace piton
