// Flags of the evaluations and the inference of other programs. How many words each takes is of
// their parsers: arguments.py of Megatron-LM and MindSpeed-LLM.
#include "cli/compatibility/inference_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct InferenceLog final : Log {
  std::vector<std::string> lines;
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
};

TEST(InferenceFlags, TakeAsManyWordsAsThere) {
  const InferenceFlags flags(InferenceCommand::kEval);
  // action='store_true' or 'store_false'
  for (const char* name : {"group-query-attention",
                           "swiglu",
                           "disable-bias-linear",
                           "add-qkv-bias",
                           "add-dense-bias",
                           "skip-bias-add",
                           "mlp-layer-fusion",
                           "untie-embeddings-and-output-weights",
                           "broadcast",
                           "fp16",
                           "bf16",
                           "greedy",
                           "no-load-optim",
                           "no-load-rng",
                           "exit-on-missing-checkpoint",
                           "use-kv-cache",
                           "no-chat-template",
                           "origin-postprocess",
                           "use-flash-attn",
                           "use-fused-rmsnorm",
                           "no-masked-softmax-fusion",
                           "no-gradient-accumulation-fusion",
                           "attention-softmax-in-fp32",
                           "use-mcore-models"}) {
    EXPECT_EQ(flags.words(name), 0) << name;
  }
  // type=...
  for (const char* name : {"micro-batch-size",
                           "num-layers",
                           "hidden-size",
                           "ffn-hidden-size",
                           "num-attention-heads",
                           "num-query-groups",
                           "max-position-embeddings",
                           "make-vocab-size-divisible-by",
                           "position-embedding-type",
                           "normalization",
                           "rotary-base",
                           "norm-epsilon",
                           "rope-scaling-type",
                           "rope-scaling-factor",
                           "rope-scaling-beta-fast",
                           "rope-scaling-beta-slow",
                           "rope-scaling-original-max-position-embeddings",
                           "max-tokens-to-oom",
                           "lora-r",
                           "lora-alpha",
                           "distributed-backend"}) {
    EXPECT_EQ(flags.words(name), 1) << name;
  }
  // nargs='+'
  for (const char* name : {"valid-data", "lora-target-modules"})
    EXPECT_NE(flags.words(name), 0) << name;
  EXPECT_EQ(flags.words("no-such-flag"), std::nullopt);
}

TEST(InferenceFlags, StandForOptionsOrAreChecked) {
  InferenceFlags flags(InferenceCommand::kEval);
  EXPECT_THAT(flags.take("micro-batch-size", {"3"}), ElementsAre("--batch-size", "3"));
  EXPECT_THAT(flags.take("no-load-rng", {}), ElementsAre());
  EXPECT_THAT(flags.take("num-layers", {"3"}), ElementsAre());
  InferenceLog log;
  ModelConfig model;
  model.layers = 3;
  flags.check(model, "x", log);
  model.layers = 4;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { flags.check(model, "x", log); }),
            "--num-layers: got 3, but the model of x has 4; leave the flag out");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { flags.take("num-layers", {"3x"}); }),
              HasSubstr("got \"3x\", wanted an integer"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { flags.take("lora-r", {}); }),
              HasSubstr("got no value, wanted one"));
}

TEST(InferenceFlags, AreThoseOfModelsAndOfTrainingToo) {
  const InferenceFlags flags(InferenceCommand::kGenerate);
  for (const char* name : {"qk-layernorm", "moe-grouped-gemm", "multi-latent-attention",
                           "use-fused-swiglu", "deepspeed", "norm_topk_prob"})
    EXPECT_EQ(flags.words(name), 0) << name;
  for (const char* name : {"kv-channels", "moe-intermediate-size", "hidden-dropout", "log-interval",
                           "history-turns", "rope-scaling-beta-fast", "deepspeed_config"})
    EXPECT_EQ(flags.words(name), 1) << name;
  EXPECT_EQ(flags.words("spec"), kAnyWords);
  // Refused by pretrain, a preset, and nobody's.
  for (const char* name : {"retro-add-retriever", "model", "no-such-flag"})
    EXPECT_EQ(flags.words(name), std::nullopt) << name;
}

TEST(InferenceFlags, HaveALineForEachReason) {
  InferenceFlags flags(InferenceCommand::kGenerate);
  for (const char* name : {"swiglu", "use-mcore-models", "qk-layernorm", "swiglu"})
    EXPECT_THAT(flags.take(name, {}), ElementsAre());
  flags.take("train-iters", {"5"});
  InferenceLog log;
  flags.check({}, "x", log);
  EXPECT_THAT(log.lines,
              ElementsAre("--swiglu, --qk-layernorm: no meaning here: read from the model's files",
                          "--use-mcore-models: no meaning here: there is one model",
                          "--train-iters: no meaning here: of training, or read from the "
                          "model's files"));
}

TEST(InferenceFlags, OfInferenceNameWhatItDoes) {
  InferenceFlags generate(InferenceCommand::kGenerate);
  EXPECT_THAT(generate.take("task", {"greedy"}), ElementsAre("--greedy"));
  EXPECT_THAT(generate.take("task", {"do_sample"}), ElementsAre());
  EXPECT_THAT(generate.take("task", {"1"}), ElementsAre("--greedy"));
  EXPECT_THAT(generate.take("task", {"2"}), ElementsAre());
  EXPECT_THAT(generate.take("add-eos-token", {"a", "b"}), ElementsAre("--stop", "a", "b"));
  const auto refusal = [](InferenceFlags& flags, const std::string& name,
                          const std::vector<std::string>& values) {
    return message_of(Fault::kUsage, [&] { flags.take(name, values); });
  };
  EXPECT_THAT(refusal(generate, "task", {"chat"}), HasSubstr("chat or 3 is piton chat"));
  EXPECT_EQ(refusal(generate, "task", {"beam_search"}),
            "--task: got beam_search; give --num-beams N in its place");
  EXPECT_THAT(refusal(generate, "task", {"beam_search_with_sampling"}),
              HasSubstr("beams here draw nothing: give --num-beams N, or --num-samples N"));
  EXPECT_EQ(refusal(generate, "hf-chat-template", {}),
            "--hf-chat-template: piton chat asks by a chat template (--chat-template); leave it "
            "out");
  InferenceFlags chat(InferenceCommand::kChat);
  EXPECT_THAT(chat.take("task", {"chat"}), ElementsAre());
  EXPECT_THAT(chat.take("task", {"3"}), ElementsAre());
  EXPECT_THAT(chat.take("hf-chat-template", {}), ElementsAre());
  EXPECT_THAT(chat.take("inference-prompt-type", {"qwen"}), ElementsAre("--chat-template", "qwen"));
  EXPECT_THAT(refusal(chat, "task", {"greedy"}), HasSubstr("wanted chat"));
  InferenceLog log;
  ModelConfig model;
  model.layers = 3;
  chat.take("num-layers", {"5"});
  chat.take("noop-layers", {"3,4"});
  chat.check(model, "x", log);
  chat.take("num-experts", {"8"});
  EXPECT_THAT(message_of(Fault::kUsage, [&] { chat.check(model, "x", log); }),
              HasSubstr("--num-experts: got 8, but the model of x has 0"));
}

TEST(InferenceFlags, OfEvaluationsAndServersAreOtherNames) {
  InferenceFlags eval(InferenceCommand::kEval);
  EXPECT_THAT(eval.take("hf-chat-template", {}), ElementsAre("--apply-chat-template"));
  EXPECT_THAT(eval.take("add-eos-token", {"a", "b"}), ElementsAre("--stop", "a", "b"));
  InferenceFlags serve(InferenceCommand::kServe);
  EXPECT_THAT(serve.take("prompt-type", {"qwen"}), ElementsAre("--chat-template", "qwen"));
  EXPECT_THAT(serve.take("max-batch-size", {"3"}), ElementsAre("--max-concurrent-requests", "3"));
  EXPECT_THAT(serve.take("temperature", {"1.0"}), ElementsAre());
  serve.take("num-layers", {"3"});
  InferenceLog log;
  ModelConfig model;
  model.layers = 4;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { serve.check(model, "x", log); }),
            "--num-layers: got 3, but the model of x has 4; leave the flag out");
}

// Scripts of mixtures give the width of layers without experts, of which there are none.
TEST(InferenceFlags, CompareNoWidthThatNoLayerHas) {
  InferenceFlags flags(InferenceCommand::kGenerate);
  flags.take("ffn-hidden-size", {"6144"});
  InferenceLog log;
  ModelConfig model;
  model.layers = 2;
  model.ffn_hidden = 768;
  model.experts = {.experts = 4, .choices = 2};
  flags.check(model, "x", log);
  model.experts->dense_layers = {0};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { flags.check(model, "x", log); }),
              HasSubstr("--ffn-hidden-size: got 6144, but the model of x has 768"));
}

TEST(InferenceFlags, ReadTheStageOfDeepSpeed) {
  const TempFolder folder;
  const std::string file = folder / "ds.json";
  InferenceFlags flags(InferenceCommand::kGenerate);
  write_text_file(file, R"({"zero_optimization": {"stage": 3}})");
  EXPECT_THAT(flags.take("deepspeed_config", {file}), ElementsAre("--zero-stage", "3"));
  write_text_file(file, R"({"zero_optimization": {"stage": 2}})");
  EXPECT_THAT(flags.take("deepspeed_config", {file}), ElementsAre());
  write_text_file(file, "[]");
  EXPECT_THAT(message_of(Fault::kData, [&] { flags.take("deepspeed_config", {file}); }),
              HasSubstr("got no JSON object"));
}

}  // namespace
}  // namespace piton::cli
