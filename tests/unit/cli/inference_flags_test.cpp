// Flags of the evaluations of other programs. How many words each takes is of their parsers:
// arguments.py of Megatron-LM and MindSpeed-LLM.
#include "cli/compatibility/evaluation_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(EvaluationFlags, TakeAsManyWordsAsThere) {
  const EvaluationFlags flags;
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

TEST(EvaluationFlags, StandForOptionsOrAreChecked) {
  EvaluationFlags flags;
  EXPECT_THAT(flags.take("micro-batch-size", {"3"}), ElementsAre("--batch-size", "3"));
  EXPECT_THAT(flags.take("no-load-rng", {}), ElementsAre());
  EXPECT_THAT(flags.take("num-layers", {"3"}), ElementsAre());
  ModelConfig model;
  model.layers = 3;
  flags.check(model, "x");
  model.layers = 4;
  EXPECT_EQ(message_of(Fault::kUsage, [&] { flags.check(model, "x"); }),
            "--num-layers: got 3, but the model of x has 4; leave the flag out");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { flags.take("num-layers", {"3x"}); }),
              HasSubstr("got \"3x\", wanted an integer"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { flags.take("lora-r", {}); }),
              HasSubstr("got no value, wanted one"));
}

}  // namespace
}  // namespace piton::cli
