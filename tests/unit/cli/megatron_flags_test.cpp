#include "cli/compatibility/megatron_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "cli/command.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct FlagsFixture {
  PretrainOptions options;
  OptionSet set;
  MegatronFlags flags;
  FlagsFixture() {
    options.add_to(set);
    set.set_foreign(&flags);
  }
  std::string failure(const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { set.parse(words); });
  }
};

struct KeptLog final : Log {
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

std::map<std::string, MegatronKind> table() {
  std::map<std::string, MegatronKind> kinds;
  for (const MegatronGroup& group : megatron_table()) {
    std::istringstream words{std::string(group.flags)};
    for (std::string word; words >> word;) {
      const std::string name = word.substr(0, word.find(':'));
      EXPECT_TRUE(kinds.emplace(name, group.kind).second) << name << " is in it twice";
    }
  }
  return kinds;
}

bool is_option(const std::string& name) {
  PretrainOptions options;
  GeneralOptions general;
  OptionSet set;
  options.add_to(set);
  set.add("General", general);
  try {
    set.parse({"--" + name});
  } catch (const Error& error) {
    return std::string_view(error.what()).find("unknown option") == std::string_view::npos;
  }
  return true;
}

TEST(MegatronTable, HasEveryFlagOfItsArguments) {
  const auto kinds = table();
  std::istringstream file(
      read_text_file(std::string(PITON_SOURCE_DIR) + "/tests/golden/megatron_arguments.txt"));
  int flags = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    for (std::string name; words >> name; ++flags) EXPECT_TRUE(kinds.contains(name)) << name;
  }
  EXPECT_EQ(flags, 584);
}

TEST(MegatronTable, SaysThatAFlagWorksExactlyWhereItIsAnOption) {
  const auto kinds = table();
  const std::vector<std::pair<std::string, MegatronKind>> all(kinds.begin(), kinds.end());
  for (const auto& [name, kind] : test::sampled(all, 5)) {
    EXPECT_EQ(is_option(name), kind == MegatronKind::kWorks) << name;
  }
}

TEST(MegatronTable, OtherSpellingsStandForOptions) {
  for (const MegatronGroup& group : megatron_table()) {
    if (group.kind != MegatronKind::kMeans) continue;
    const std::string first(group.note.substr(2, group.note.find(' ') - 2));
    EXPECT_TRUE(is_option(first)) << group.note;
  }
}

// Those that the four programs whose scripts run here have for parallelism, recomputation and CoC:
// of Megatron-LM of 2023 with its Ascend port, MindSpeed's CoC, MindSpeed-LLM and AscendSpeed.
TEST(MegatronTable, HasNoParallelFlagOfItsOriginsForLater) {
  const auto kinds = table();
  std::istringstream words(
      "DDP-impl accumulate-allreduce-grads-in-fp32 auto-recompute-device-size "
      "auto-recompute-profiling-step checkpoint-activations checkpoint-num-layers "
      "checkpoint-policy checkpoint-block-layer coc-fused-kernel coc-mode coc-parallel-num "
      "cpu-optimizer deepspeed deepspeed-activation-checkpointing deepspeed_config "
      "distribute-checkpointed-activations fold-mode foldx-mode fp16-lm-cross-entropy "
      "manual-layers manual-mbs no-contiguous-buffers-in-local-ddp no-pipeline-parallel "
      "no-scatter-gather-tensors-in-pipeline num-layers-per-virtual-pipeline-stage "
      "optimized-pipeline partition-activations pipeline-model-parallel-size rampup-batch-size "
      "recomputation-layer-num recompute-granularity recompute-method recompute-num-layers "
      "remote-device sequence-parallel tensor-model-parallel-size use-ascend-coc "
      "use-cpu-initialization use-distributed-optimizer use-manual-layer-allocation "
      "use-pin-memory variable-seq-lengths zero-stage");
  for (std::string name; words >> name;) {
    const auto found = kinds.find(name);
    if (found == kinds.end()) {
      EXPECT_TRUE(is_option(name)) << name;
    } else {
      EXPECT_NE(found->second, MegatronKind::kNotYet) << name;
    }
  }
}

TEST(MegatronFlags, OfNoMeaningAreTakenAndReportedTogether) {
  FlagsFixture f;
  EXPECT_TRUE(f.set
                  .parse({"--distributed-backend", "nccl", "--num-workers", "1", "--no-rope-fusion",
                          "--transformer-impl", "local", "--lr", "0.5"})
                  .empty());
  EXPECT_EQ(f.options.learning_rate.lr, 0.5);
  KeptLog log;
  f.flags.report(log);
  ASSERT_EQ(log.lines.size(), 3U);
  EXPECT_THAT(log.lines[2],
              testing::StartsWith("--no-rope-fusion, --transformer-impl: no meaning"));
}

TEST(MegatronFlags, ToComeAreRefusedWithAllElseThatIsWrong) {
  FlagsFixture f;
  const std::string message =
      f.failure({"--moe-layer-recompute", "--mrope-section", "16", "24", "--fp4-format", "e2m1",
                 "--lr", "fast", "--no-such-flag", "1"});
  EXPECT_EQ(
      message,
      "5 options cannot be taken:\n"
      "  --moe-layer-recompute: not yet; --recompute-granularity selective or full recomputes "
      "layers\n"
      "  --mrope-section: not yet; the model would be another one\n"
      "  --fp4-format: not yet; --fp8-format has the shortest types\n"
      "  --lr: got \"fast\", wanted number\n"
      "  --no-such-flag: unknown option; --help lists all");
}

// Those of scripts of Mixtral and Qwen 3 MoE.
TEST(MegatronFlags, OfExpertsAreOptionsOrChangeNothing) {
  FlagsFixture f;
  f.set.parse({"--num-experts",
               "8",
               "--moe-router-topk",
               "2",
               "--moe-ffn-hidden-size",
               "64",
               "--moe-router-load-balancing-type",
               "aux_loss",
               "--moe-aux-loss-coeff",
               "1e-2",
               "--moe-router-pre-softmax",
               "--moe-grouped-gemm",
               "--moe-flex-dispatcher-backend",
               "deepep",
               "--moe-permute-fusion",
               "--moe-router-dtype",
               "fp32",
               "--moe-router-score-function",
               "sigmoid",
               "--moe-router-enable-expert-bias",
               "--moe-router-num-groups",
               "4",
               "--moe-router-group-topk",
               "2",
               "--moe-router-topk-scaling-factor",
               "2.5",
               "--moe-expert-capacity-factor",
               "1.25",
               "--moe-token-drop-policy",
               "position",
               "--moe-pad-expert-input-to-capacity",
               "--moe-layer-freq",
               "1",
               "--moe-z-loss-coeff",
               "1e-3",
               "--moe-token-dispatcher-type",
               "alltoall",
               "--expert-model-parallel-size",
               "2"});
  EXPECT_EQ(f.options.model.mlp.experts, 8);
  EXPECT_EQ(f.options.parallel.expert, 2);
  EXPECT_TRUE(f.options.parallel.sends_rows_to_experts);
  EXPECT_EQ(f.options.model.mlp.balance_factor, 1e-2);
  EXPECT_EQ(f.options.model.mlp.z_factor, 1e-3);
  EXPECT_EQ(f.options.model.mlp.router.score, "sigmoid");
  EXPECT_TRUE(f.options.model.mlp.router.choice_bias);
  EXPECT_EQ(f.options.model.mlp.router.weight_factor, 2.5);
  EXPECT_EQ(f.options.model.mlp.capacity.factor, 1.25);
  EXPECT_EQ(f.options.model.mlp.capacity.policy, "position");
  KeptLog log;
  f.flags.report(log);
  EXPECT_EQ(log.lines.size(), 2U);
  EXPECT_THAT(f.failure({"--moe-router-load-balancing-type", "sinkhorn"}),
              HasSubstr("wanted one of aux_loss, seq_aux_loss, none"));
  f.set.parse({"--num-experts", "4", "--moe-router-topk", "1", "--moe-apply-probs-on-input",
               "--moe-router-force-load-balancing"});
  EXPECT_TRUE(f.options.model.mlp.router.weighs_inputs && f.options.model.mlp.router.random);
}

TEST(MegatronFlags, ThatStandForOptionsSetThem) {
  FlagsFixture f;
  f.set.parse(
      {"--checkpoint-activations", "--use-rotary-position-embeddings", "--batch-size", "3"});
  EXPECT_EQ(f.options.parallel.recompute, RecomputeRequest::kFull);
  EXPECT_EQ(f.options.model.attention.positions, "rope");
  EXPECT_EQ(f.options.loop.micro_batch_size, 3);
  // AscendSpeed's, with dashes or not.
  f.set.parse({"--checkpoint_policy", "block", "--checkpoint-block-layer", "25"});
  EXPECT_TRUE(f.options.parallel.recompute_rules({30}).block);
  EXPECT_EQ(f.options.parallel.recompute_rules({30}).layers, 25);
  f.set.parse({"--checkpoint-policy", "full", "--checkpoint-num-layers", "2"});
  EXPECT_FALSE(f.options.parallel.recompute_rules({30}).block);
  EXPECT_EQ(f.options.parallel.recompute_rules({30}).layers, 2);
  f.set.parse({"--recompute-activations"});
  EXPECT_EQ(f.options.parallel.recompute, RecomputeRequest::kSelective);
}

// Those of MindSpeed-LLM's scripts of LLaMA and Qwen.
TEST(MegatronFlags, OfMindSpeedSetOptionsByTheirValues) {
  FlagsFixture f;
  f.set.parse({"--context-parallel-algo", "ulysses_cp_algo", "--schedules-method", "dualpipev",
               "--rope-scaling-type", "llama3", "--rope-scaling-factor", "8", "--low-freq-factor",
               "1.0", "--high-freq-factor", "4.0", "--original-max-position-embeddings", "8192",
               "--num-layer-list", "1,2,1"});
  EXPECT_TRUE(f.options.parallel.context_forms().has(ContextExchange::kHeads));
  EXPECT_EQ(f.options.parallel.schedule.manual_layers, "1,2,1");
  EXPECT_TRUE(f.options.parallel.schedule.manual_allocation);
  EXPECT_TRUE(f.set.given("pipeline-schedule"));
  EXPECT_TRUE(f.set.given("rotary-scaling-type"));
  f.set.parse({"--rope-scaling-type", "yarn", "--rope-scaling-beta-fast", "32",
               "--rope-scaling-beta-slow", "1"});
  EXPECT_EQ(f.options.model.rotary.scaling_type, "yarn");
  EXPECT_EQ(f.options.model.rotary.fast, 32);
  f.set.parse({"--context-parallel-algo", "megatron_cp_algo"});
  EXPECT_TRUE(f.options.parallel.context_forms().has(ContextExchange::kRing));
  f.set.parse({"--context-parallel-algo", "kvallgather_cp_algo"});
  EXPECT_TRUE(f.options.parallel.context_forms().has(ContextExchange::kGather));
  f.set.parse({"--context-parallel-size", "8", "--context-parallel-algo", "hybrid_cp_algo",
               "--ulysses-degree-in-cp", "4"});
  EXPECT_TRUE(f.options.parallel.context_forms().has(ContextExchange::kHeadsAndRing));
  EXPECT_EQ(f.options.parallel.context_forms().heads, 4);
  EXPECT_EQ(f.failure({"--context-parallel-algo", "adaptive_cp_algo"}),
            "--context-parallel-algo: got \"adaptive_cp_algo\", wanted megatron_cp_algo or "
            "ulysses_cp_algo or hybrid_cp_algo or kvallgather_cp_algo; here it is --cp-comm-type");
  EXPECT_EQ(f.failure({"--low-freq-factor", "2"}),
            "--low-freq-factor: got \"2\", wanted 1 or 1.0; those of --rotary-scaling-type llama3");
}

TEST(MegatronFlags, OfMindSpeedWithoutMeaningAreTaken) {
  FlagsFixture f;
  f.set.parse({"--use-mc2", "--reuse-fp32-param", "--no-shared-storage", "--use-deter-comp",
               "--use-cp-send-recv-overlap", "--use-fused-ring-attention-update",
               "--cp-attention-mask-type", "causal", "--tokenizer-padding-side", "right",
               "--profile-level", "level1", "--profile-with-cpu", "--enable-high-availability",
               "--attention-mask-type", "general"});
  KeptLog log;
  f.flags.report(log);
  EXPECT_EQ(log.lines.size(), 6U);
  EXPECT_THAT(f.failure({"--attention-mask-type", "full"}), HasSubstr("wanted causal or general"));
  EXPECT_EQ(f.failure({"--o2-optimizer"}),
            "--o2-optimizer: not yet; sums of gradients and the optimizer's state are fp32; "
            "--zero-stage shards them");
}

// Those that only make its programs faster, or smaller.
TEST(MegatronFlags, OfMindSpeedsSpeedAreTaken) {
  FlagsFixture f;
  f.set.parse({"--swap-attention",
               "--swap-optimizer",
               "--moe-alltoall-overlap-comm",
               "--moe-allgather-overlap-comm",
               "--mla-fa-without-pad",
               "--mla-mm-split",
               "--mtp-mem-efficient-logits",
               "--moe-fb-overlap",
               "--moe-tp-extend-ep",
               "--moe-zero-memory",
               "level1",
               "--output-layer-slice-num",
               "10",
               "--disable-gloo-group",
               "--kv-head-repeat-before-uly-alltoall",
               "--moe-hierarchical-alltoallv",
               "--moe-experts-pipeline-degree",
               "2",
               "--no-pad-to-seq-lengths",
               "--log-batch-size-to-tensorboard",
               "--workers",
               "4",
               "--model-type-hf",
               "qwen3",
               "--enable-hf2mg-convert",
               "--lr",
               "0.5"});
  EXPECT_EQ(f.options.learning_rate.lr, 0.5);
  KeptLog log;
  f.flags.report(log);
  EXPECT_EQ(log.lines.size(), 11U);
  EXPECT_EQ(log.lines[0],
            "--swap-attention: no meaning here: what layers keep stays in memory; "
            "--offload-activations FOLDER --cpu-offloading-num-layers N moves it to a file");
}

TEST(MegatronFlags, OfMindSpeedsPositionsAreOptions) {
  FlagsFixture f;
  f.set.parse({"--rope-scaling-type", "longrope", "--longrope-freqs-type", "mul", "--long-factor",
               "2,3", "--short-factor", "1,1.5", "--use-glm-rope", "--sliding-window", "4096"});
  const RotaryOptions& rotary = f.options.model.rotary;
  EXPECT_EQ(rotary.scaling_type, "longrope");
  EXPECT_THAT(rotary.long_factors, ElementsAre(2, 3));
  EXPECT_THAT(rotary.short_factors, ElementsAre(1, 1.5));
  EXPECT_TRUE(rotary.interleaved);
  EXPECT_EQ(f.options.model.attention.window_before, 4096);
}

TEST(MegatronFlags, OfTokenizersAreRefusedWithAWordAboutTokenizers) {
  FlagsFixture f;
  EXPECT_EQ(f.failure({"--tiktoken-pattern", "v2"}),
            "--tiktoken-pattern: not yet; a tokenizer is read from its files; one that is not "
            "TikTokenizer needs none of these");
}

TEST(MegatronFlags, ThatSayWhatIsSoTakeNoOtherValue) {
  FlagsFixture f;
  f.set.parse({"--data-impl", "mmap", "--expert-tensor-parallel-size", "1"});
  f.set.parse({"--data-impl", "lazy"});
  EXPECT_EQ(f.failure({"--data-impl", "eager"}),
            "--data-impl: got \"eager\", wanted mmap or infer or lazy or cached; files are read as "
            "their heads say, which have to be those of mmap");
  EXPECT_THAT(f.failure({"--expert-tensor-parallel-size", "2"}), HasSubstr("got \"2\", wanted 1"));
  EXPECT_EQ(f.failure({"--data-impl"}), "--data-impl: got no value, wanted one");
}

TEST(MegatronFlags, AreCheckedAgainstTheModel) {
  const auto failure = [](const std::vector<std::string>& words) {
    FlagsFixture f;
    f.set.parse(words);
    return message_of(Fault::kUsage, [&] { f.flags.check(f.options.model); });
  };
  const auto holds = [](const std::vector<std::string>& words) {
    FlagsFixture f;
    f.set.parse(words);
    f.flags.check(f.options.model);
  };
  holds({"--model", "llama-1.1b", "--group-query-attention"});
  EXPECT_THAT(failure({"--model", "gpt2-124m", "--group-query-attention"}),
              HasSubstr("every head has its own keys"));
  holds({"--model", "llama-tiny", "--no-position-embedding"});
  EXPECT_THAT(failure({"--model", "gpt2-tiny", "--no-position-embedding"}),
              HasSubstr("positions are learned"));
  holds({"--model", "llama-tiny", "--add-qkv-bias"});
  holds({"--no-load-rng", "--distributed-backend", "nccl"});  // the model is what --load says
}

TEST(MegatronFlags, MakeALlamaOfMegatronsDecoder) {
  FlagsFixture f;
  f.set.parse({"--num-layers",
               "2",
               "--hidden-size",
               "64",
               "--num-attention-heads",
               "4",
               "--max-position-embeddings",
               "32",
               "--vocab-size",
               "100",
               "--swiglu",
               "--normalization",
               "RMSNorm",
               "--disable-bias-linear",
               "--untie-embeddings-and-output-weights",
               "--position-embedding-type",
               "rope",
               "--attention-dropout",
               "0",
               "--hidden-dropout",
               "0",
               "--ffn-hidden-size",
               "128"});
  const ModelConfig megatron = f.options.model.resolve(std::nullopt);
  FlagsFixture llama;
  llama.set.parse({"--model-family", "llama", "--num-layers", "2", "--hidden-size", "64",
                   "--num-attention-heads", "4", "--max-position-embeddings", "32", "--vocab-size",
                   "100", "--ffn-hidden-size", "128"});
  const ModelConfig named = llama.options.model.resolve(std::nullopt);
  EXPECT_EQ(megatron.parameters(), named.parameters());
  EXPECT_EQ(megatron.norm, named.norm);
  EXPECT_EQ(megatron.positions, named.positions);
  EXPECT_EQ(megatron.activation, named.activation);
  EXPECT_EQ(megatron.gated, named.gated);
  EXPECT_EQ(megatron.biases, named.biases);
  EXPECT_EQ(megatron.qkv_biases, named.qkv_biases);
  EXPECT_EQ(megatron.tied, named.tied);
}

// tf32 is no misspelt bf16.
TEST(Hints, AreNearSpellingsOrNothing) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  EXPECT_EQ(message_of(Fault::kUsage, [&] { set.parse({"--tf32"}); }),
            "--tf32: unknown option; --help lists all");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { set.parse({"--bf6"}); }), HasSubstr("mean --bf16?"));
}

}  // namespace
}  // namespace piton::cli
