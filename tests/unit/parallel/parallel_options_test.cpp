#include "parallel/parallel_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "support/errors.h"

namespace piton {
namespace {

std::string refusal(const std::vector<std::string>& words, int world_size) {
  ParallelOptions options;
  OptionSet set;
  set.add("parallel", options);
  try {
    set.parse(words);
    options.check(world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(ParallelOptions, GiveTheRanksThatAreLeftToData) {
  ParallelOptions options;
  OptionSet set;
  set.add("parallel", options);
  set.parse({"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "3"});
  const MeshSizes sizes = options.check(24);
  EXPECT_EQ(sizes[Axis::kTensor], 2);
  EXPECT_EQ(sizes[Axis::kPipeline], 3);
  EXPECT_EQ(sizes[Axis::kData], 4);
  EXPECT_EQ(sizes.ranks(), 24);
}

TEST(ParallelOptions, NameTheFlagsThatDoNotFitTheProcesses) {
  EXPECT_EQ(refusal({"--tensor-model-parallel-size=4", "--pipeline-model-parallel-size=2"}, 12),
            "mesh: 12 processes cannot form tensor 4 x pipeline 2; start a multiple of 8 "
            "(piton launch 8 COMMAND ...), or change "
            "--tensor-model-parallel-size or --pipeline-model-parallel-size");
  EXPECT_EQ(refusal({"--tensor-model-parallel-size=2"}, 1),
            "mesh: 1 process cannot form tensor 2 x pipeline 1; start a multiple of 2 "
            "(piton launch 2 COMMAND ...), or change "
            "--tensor-model-parallel-size or --pipeline-model-parallel-size");
}

TEST(ParallelOptions, DivideSamplesOverContextRanks) {
  ParallelOptions options;
  OptionSet set;
  set.add("parallel", options);
  set.parse({"--tensor-model-parallel-size", "2", "--context-parallel-size", "3"});
  EXPECT_TRUE(options.context_forms().has(ContextExchange::kRing));
  const MeshSizes sizes = options.check(12);
  EXPECT_EQ(sizes[Axis::kContext], 3);
  EXPECT_EQ(sizes[Axis::kData], 2);
  EXPECT_EQ(options.planned_ranks({}), 6);
  EXPECT_EQ(refusal({"--context-parallel-size=3", "--tensor-model-parallel-size=2"}, 4),
            "mesh: 4 processes cannot form tensor 2 x context 3 x pipeline 1; start a multiple of "
            "6 (piton launch 6 COMMAND ...), or change --tensor-model-parallel-size, "
            "--context-parallel-size or --pipeline-model-parallel-size");
  EXPECT_THAT(refusal({"--context-parallel-size=0"}, 1),
              testing::HasSubstr("--context-parallel-size is 0, wanted at least 1"));
  EXPECT_THAT(refusal({"--cp-comm-type=rings"}, 1), testing::HasSubstr("--cp-comm-type"));
}

TEST(ParallelOptions, DivideExpertsOverDataParallelRanks) {
  ParallelOptions options;
  OptionSet set;
  set.add("parallel", options);
  set.parse({"--tensor-model-parallel-size", "2", "--expert-model-parallel-size", "3"});
  const MeshSizes sizes = options.check(12);
  EXPECT_EQ(sizes[Axis::kExpert], 3);
  EXPECT_EQ(sizes[Axis::kData], 2);
  EXPECT_EQ(sizes.sample_ranks(), 6);
  EXPECT_EQ(options.planned_ranks({}), 6);
  EXPECT_EQ(refusal({"--expert-model-parallel-size=3", "--tensor-model-parallel-size=2"}, 8),
            "parallel: --expert-model-parallel-size: got 3, wanted a number that divides the 4 "
            "data-parallel ranks (processes / tensor / context / pipeline)");
  EXPECT_THAT(refusal({"--expert-model-parallel-size=0"}, 1),
              testing::HasSubstr("--expert-model-parallel-size is 0, wanted at least 1"));
  const std::string instances = "--num-distributed-optimizer-instances=2";
  EXPECT_EQ(refusal({"--expert-model-parallel-size=2", "--zero-stage=1", instances}, 4),
            "accepted");
  EXPECT_EQ(refusal({"--expert-model-parallel-size=2", "--zero-stage=1", instances}, 2),
            "parallel: --num-distributed-optimizer-instances: got 2, wanted a number that divides "
            "the 1 data-parallel ranks of an expert");
}

TEST(ParallelOptions, ShardSeveralTimes) {
  const std::string flag = "--num-distributed-optimizer-instances=";
  EXPECT_EQ(refusal({flag + "2", "--zero-stage=1"}, 4), "accepted");
  EXPECT_EQ(refusal({flag + "4", "--use-distributed-optimizer", "--context-parallel-size=2"}, 4),
            "accepted");
  EXPECT_EQ(refusal({flag + "3", "--zero-stage=3"}, 4),
            "parallel: --num-distributed-optimizer-instances: got 3, wanted a number that divides "
            "the 4 data-parallel ranks");
  EXPECT_THAT(refusal({flag + "2"}, 4), testing::HasSubstr("needs --use-distributed-optimizer"));
  EXPECT_THAT(refusal({flag + "0"}, 4), testing::HasSubstr("is 0, wanted at least 1"));
}

TEST(ParallelOptions, CutSamplesIntoStretches) {
  const auto refusal = [](const ParallelOptions& options, std::int64_t sequence,
                          bool dropout) -> std::string {
    try {
      options.check_sequence(sequence, dropout);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const ParallelOptions ring{.context = 3};
  const ParallelOptions heads{.context = 3, .context_exchanges = {"a2a"}};
  EXPECT_EQ(refusal({}, 7, true), "accepted");
  EXPECT_EQ(refusal(ring, 18, false), "accepted");
  EXPECT_EQ(refusal(ring, 24, true), "accepted");
  EXPECT_EQ(refusal(heads, 18, true), "accepted");
  EXPECT_EQ(refusal(heads, 32, true),
            "--seq-length: got 32, wanted a multiple of 6: --context-parallel-size 3 cuts samples "
            "into 6 stretches");
  EXPECT_EQ(refusal(ring, 18, true),
            "--seq-length: got 18, wanted a multiple of 24: --context-parallel-size 3 cuts samples "
            "into 6 stretches, and with --attention-dropout those of a ring of --cp-comm-type p2p "
            "or a2a+p2p have 4 tokens each or a multiple");
  const ParallelOptions gathered{.context = 3, .context_exchanges = {"allgather"}};
  EXPECT_EQ(refusal(gathered, 18, true), "accepted");
  // Stretches of the rings are as long as those of the ranks that exchange heads together.
  const auto both = [](int heads, int ring) {
    return ParallelOptions{.context = heads * ring,
                           .context_exchanges = {"a2a+p2p"},
                           .hierarchical_context = {heads, ring}};
  };
  EXPECT_EQ(both(2, 3).sequence_multiple(true), 24);
  EXPECT_EQ(both(3, 2).sequence_multiple(true), 48);
  EXPECT_EQ(both(4, 2).sequence_multiple(true), 16);
  EXPECT_EQ(both(3, 2).sequence_multiple(false), 12);
  EXPECT_EQ(both(3, 1).sequence_multiple(true), 6);
}

TEST(ParallelOptions, DivideContextRanksIntoThoseOfHeadsAndOfRings) {
  const std::string ranks = "--context-parallel-size=6";
  const std::string sizes = "--hierarchical-context-parallel-sizes";
  ParallelOptions options;
  OptionSet set;
  set.add("parallel", options);
  set.parse({ranks, "--cp-comm-type", "a2a+p2p", sizes, "2", "3"});
  EXPECT_EQ(options.context_forms().heads, 2);
  EXPECT_EQ(options.context_forms().of_layer(5), ContextExchange::kHeadsAndRing);
  set.parse({"--cp-comm-type", "p2p", "all_gather", "a2a+p2p", sizes, "3"});
  EXPECT_EQ(options.context_forms().heads, 3);
  EXPECT_EQ(options.context_forms().of_layer(0), ContextExchange::kRing);
  EXPECT_EQ(options.context_forms().of_layer(1), ContextExchange::kGather);
  const std::string both = "--cp-comm-type=a2a+p2p";
  EXPECT_EQ(refusal({ranks, both, sizes, "2", "2"}, 6),
            "parallel: --hierarchical-context-parallel-sizes: got 2 2, wanted two numbers whose "
            "product is --context-parallel-size, which is 6");
  EXPECT_THAT(refusal({ranks, both, sizes, "4"}, 6), testing::HasSubstr("got 4, wanted two"));
  EXPECT_THAT(refusal({ranks, both, sizes, "1", "2", "3"}, 6), testing::HasSubstr("got 1 2 3"));
  EXPECT_THAT(refusal({ranks, both, sizes, "0", "3"}, 6),
              testing::HasSubstr("is 0, wanted at least 1"));
  EXPECT_THAT(refusal({ranks, both}, 6),
              testing::HasSubstr("--cp-comm-type a2a+p2p: needs --hierarchical-context"));
  EXPECT_THAT(refusal({ranks, sizes, "2", "3"}, 6),
              testing::HasSubstr("sizes: needs --cp-comm-type a2a+p2p"));
}

TEST(InferenceOptions, HaveWorkForEveryProcess) {
  EXPECT_EQ((InferenceOptions{.tensor = 2, .pipeline = 2}).check(4)[Axis::kPipeline], 2);
  EXPECT_EQ(InferenceOptions{.zero_stage = 3}.check(4)[Axis::kData], 4);
  const auto refusal = [](const InferenceOptions& options, int world_size) -> std::string {
    try {
      options.check(world_size);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({.tensor = 2}, 4),
            "mesh: 4 processes, and tensor 2 x pipeline 1 has work for 2; start 2, change "
            "--tensor-model-parallel-size or --pipeline-model-parallel-size, or share the weights "
            "with --zero-stage 3");
  EXPECT_THAT(refusal({.zero_stage = 1}, 2),
              testing::HasSubstr("--zero-stage is 1, wanted 0 or 3"));
  EXPECT_THAT(refusal({.pipeline = 2}, 3), testing::HasSubstr("3 processes cannot form"));
}

TEST(ParallelOptions, RefuseValuesOutOfRange) {
  EXPECT_EQ(refusal({"--zero-stage=4"}, 1), "parallel: --zero-stage is 4, wanted 0, 1, 2 or 3");
  EXPECT_EQ(refusal({"--zero-stage=-1"}, 1), "parallel: --zero-stage is -1, wanted 0, 1, 2 or 3");
  EXPECT_EQ(refusal({"--tensor-model-parallel-size=0"}, 1),
            "parallel: --tensor-model-parallel-size is 0, wanted at least 1");
  EXPECT_EQ(refusal({"--coc-parallel-num=0"}, 1),
            "parallel: --num-slices: got 0, wanted 1, 2, 4 or 8");
  EXPECT_NE(refusal({"--pipeline-schedule=gpipe"}, 1), "accepted");
  EXPECT_NE(refusal({"--recompute-granularity=partial"}, 1), "accepted");
}

TEST(ParallelOptions, RecomputeLayersOfAStage) {
  ParallelOptions options;
  EXPECT_EQ(options.recompute_rules({4}).granularity, RecomputeGranularity::kNone);
  options.recompute = RecomputeRequest::kFull;
  EXPECT_EQ(options.recompute_rules({4}).layers, 1);
  EXPECT_FALSE(options.recompute_rules({4}).block);
  options.recompute_method = "block";
  options.recompute_layers = 4;
  EXPECT_EQ(options.recompute_rules({4}).layers, 4);
  EXPECT_TRUE(options.recompute_rules({4}).block);
  const auto refused = [&](std::int64_t layers) {
    return message_of(Fault::kUsage, [&] { options.recompute_rules({layers}); });
  };
  EXPECT_EQ(refused(3), "parallel: --recompute-num-layers (of a stage): got 4, wanted 1 to 3");
  options.recompute = RecomputeRequest::kSelective;
  EXPECT_THAT(refused(4), testing::HasSubstr("--recompute-method: needs --recompute-granularity"));
  options.recompute_method.reset();
  EXPECT_THAT(refused(4), testing::HasSubstr("--recompute-num-layers: needs"));
}

TEST(ParallelOptions, RecomputeLayersByStage) {
  ParallelOptions options;
  options.pipeline = 2;
  options.recompute = RecomputeRequest::kFull;
  options.recompute_method = "custom";
  options.recompute_layers_of_stage = {3, 0};
  const RecomputeRules rules = options.recompute_rules({3, 2});
  EXPECT_TRUE(rules.block);
  EXPECT_EQ(rules.layers_on(0), 3);
  EXPECT_EQ(rules.layers_on(1), 0);
  options.recompute_layers_of_stage = {0, 3};
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           options.recompute_rules({3, 2});
                         }),
              testing::HasSubstr("--recomputation-layer-num of stage 1: got 3, wanted 0 to 2"));
}

TEST(ParallelOptions, NormsAndActivationsBesideOtherParts) {
  ParallelOptions options;
  options.pipeline = 2;
  options.recompute_norm = true;
  RecomputeRules rules = options.recompute_rules({4, 4});
  EXPECT_EQ(rules.granularity, RecomputeGranularity::kSelective);
  EXPECT_EQ(rules.parts_again(0, 3), RecomputedParts{.norms = true});
  options.recompute = RecomputeRequest::kSelective;
  EXPECT_EQ(options.recompute_rules({4, 4}).parts,
            (RecomputedParts{.attention = true, .norms = true}));
  // Two layers whole, then the norms of one and the activations of two.
  options.recompute = RecomputeRequest::kFull;
  options.recompute_method = "block";
  options.recompute_layers = 2;
  options.recompute_norm_layers = 1;
  options.recompute_activation = true;
  options.recompute_activation_layers = 2;
  rules = options.recompute_rules({4, 4});
  EXPECT_EQ(rules.parts_again(1, 2), (RecomputedParts{.norms = true, .activation = true}));
  EXPECT_EQ(rules.parts_again(1, 3), RecomputedParts{.activation = true});
  EXPECT_EQ(rules.parts_again(1, 4), RecomputedParts{});
  const auto refused = [&] {
    return message_of(Fault::kUsage, [&] { options.recompute_rules({4, 4}); });
  };
  options.recompute_norm_layers = 5;
  EXPECT_EQ(refused(), "parallel: --recompute-norm-num-layers (of a stage): got 5, wanted 0 to 4");
  options.recompute_norm_layers = 1;
  options.recompute_norm = false;
  EXPECT_EQ(refused(), "parallel: --recompute-norm-num-layers: needs --recompute-norm");
  options.recompute_norm_layers.reset();
  options.recompute_method = "uniform";
  EXPECT_THAT(refused(), testing::HasSubstr("--recompute-activation-function: needs layers that"));
}

TEST(ParallelOptions, InputsAreDividedOverTensorRanks) {
  ParallelOptions options;
  options.distribute_inputs = true;
  const auto refused = [&] {
    return message_of(Fault::kUsage, [&] { options.recompute_rules({4, 4}); });
  };
  EXPECT_THAT(refused(), testing::HasSubstr("needs --recompute-granularity full"));
  options.recompute = RecomputeRequest::kFull;
  EXPECT_THAT(refused(), testing::HasSubstr("needs --tensor-model-parallel-size of 2 or more"));
  options.tensor = 2;
  EXPECT_TRUE(options.recompute_rules({4, 4}).distributed);
  options.linears.sequence_parallel = true;
  EXPECT_THAT(refused(), testing::HasSubstr("--sequence-parallel divides them already"));
}

TEST(ParallelOptions, DeviceSizeStandsForAutoAndALimit) {
  ParallelOptions options;
  options.auto_recompute_mebibytes = 3;
  EXPECT_EQ(options.effective_recompute(), RecomputeRequest::kAuto);
  EXPECT_EQ(options.recompute_limit(), 3 << 20);
  const auto refused = [&] {
    return message_of(Fault::kUsage, [&] { options.recompute_limit(); });
  };
  options.memory_limit = "1GB";
  EXPECT_THAT(refused(), testing::HasSubstr("auto --memory-limit 3MiB; leave those flags out"));
  options.memory_limit = "";
  options.recompute = RecomputeRequest::kFull;
  EXPECT_THAT(refused(), testing::HasSubstr("leave those flags out"));
  options.auto_recompute_mebibytes = 0;
  EXPECT_THAT(refused(), testing::HasSubstr("(MiB, or -1): got 0, wanted 1 to"));
}

TEST(ParallelOptions, RecomputeLimitNeedsAuto) {
  ParallelOptions options;
  EXPECT_FALSE(options.recompute_limit());
  options.memory_limit = "2MiB";
  EXPECT_THAT(message_of(Fault::kUsage, [&] { options.recompute_limit(); }),
              testing::HasSubstr("--memory-limit: needs --recompute-granularity auto"));
  options.recompute = RecomputeRequest::kAuto;
  EXPECT_EQ(options.recompute_limit(), 2 << 20);
}

TEST(ParallelOptions, DistributedOptimizerIsStageOneUnlessMoreIsAskedFor) {
  ParallelOptions options;
  EXPECT_EQ(options.effective_zero_stage(), 0);
  options.use_distributed_optimizer = true;
  EXPECT_EQ(options.effective_zero_stage(), 1);
  options.zero_stage = 3;
  EXPECT_EQ(options.effective_zero_stage(), 3);
}

}  // namespace
}  // namespace piton
