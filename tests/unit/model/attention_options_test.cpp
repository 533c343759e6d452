// The effect of the attention flags on a model, and the flags that are refused.
#include "model/attention_options.h"

#include <gtest/gtest.h>

#include "model/config.h"
#include "support/errors.h"

namespace piton {
namespace {

ModelConfig attention_of(const std::vector<std::string>& flags) {
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  std::vector<std::string> words;
  if (flags.empty() || flags[0] != "--model") words = {"--model", "gpt2-tiny"};
  words.insert(words.end(), flags.begin(), flags.end());
  EXPECT_TRUE(set.parse(words).empty());
  return options.resolve(std::nullopt);
}

TEST(AttentionOptions, LeaveTheFamilyAlone) {
  const ModelConfig config = attention_of({"--use-flash-attn"});
  EXPECT_EQ(config.positions, PositionKind::kLearned);
  EXPECT_FALSE(config.window_before || config.window_after);
}

TEST(AttentionOptions, GiveTheWindowOfEachMode) {
  const ModelConfig flash = attention_of({"--pre-tockens", "65536", "--next-tockens", "65536"});
  EXPECT_EQ(flash.window_before, 65536);
  EXPECT_EQ(flash.window_after, 65536);
  EXPECT_EQ(attention_of({"--pre-tokens", "7"}).window_before, 7);
  EXPECT_EQ(attention_of({"--pre-tockens", "9223372036854775807"}).window_before,
            9223372036854775807);
  for (const char* causal : {"1", "2", "3"})
    EXPECT_FALSE(attention_of({"--sparse-mode", causal}).window_before);
  const ModelConfig band =
      attention_of({"--sparse-mode", "4", "--pre-tockens", "8", "--next-tockens", "-2"});
  EXPECT_EQ(band.window_before, 8);
  EXPECT_EQ(band.window_after, -2);
  EXPECT_EQ(attention_of({"--sparse-mode", "4", "--pre-tockens", "8", "--next-tockens", "0"})
                .window_after,
            0);
}

TEST(AttentionOptions, RefuseWindowsThatCannotBe) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    EXPECT_NE(message_of(Fault::kUsage, [&] { attention_of(flags); }).find(with), std::string::npos)
        << with;
  };
  refused({"--sparse-mode", "9"}, "--sparse-mode: got 9, wanted 0 to 8");
  refused({"--sparse-mode", "-1"}, "--sparse-mode: got -1");
  refused({"--sparse-mode", "2", "--pre-tockens", "3"},
          "mode 2 has no window, and --pre-tockens is given");
  refused({"--sparse-mode", "3", "--next-tockens", "0"},
          "mode 3 has no window, and --next-tockens is given");
  refused({"--sparse-mode", "4", "--pre-tockens", "3"}, "give both");
  refused({"--sparse-mode", "4", "--pre-tockens", "3", "--next-tockens", "1"},
          "--next-tockens: got 1, wanted at most 0");
  refused({"--pre-tockens", "-1"}, "--pre-tockens: got -1, wanted 0 or more");
  refused({"--pre-tockens", "3", "--next-tockens", "-4"},
          "--next-tockens: got -4, wanted -3 or more");
  refused({"--next-tockens", "-129"}, "--next-tockens: got -129, wanted -128 or more");
  refused({"--position-embedding-type", "rotated"},
          "learned_absolute, rope, alibi, relative, none");
}

TEST(AttentionOptions, GiveThePrefixAndTheDocumentsOfTheLastModes) {
  for (const char* mode : {"5", "6"}) {
    EXPECT_TRUE(attention_of({"--sparse-mode", mode}).prefix);
    EXPECT_EQ(AttentionOptions::of(attention_of({"--sparse-mode", mode})).sparse_mode, 5);
  }
  for (const char* mode : {"0", "7", "8"}) {
    const ModelConfig config = attention_of({"--sparse-mode", mode});
    EXPECT_FALSE(config.prefix || config.window_before || config.window_after);
  }
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    EXPECT_NE(message_of(Fault::kUsage, [&] { attention_of(flags); }).find(with), std::string::npos)
        << with;
  };
  for (const char* mode : {"5", "6", "7", "8"}) {
    refused({"--sparse-mode", mode, "--pre-tockens", "3"}, "has no window, and --pre-tockens");
    refused({"--sparse-mode", mode, "--use-flash-attn"}, "wanted 0 or 2 with --use-flash-attn");
  }
  refused({"--sparse-mode", "5", "--triangle-attn"}, "--triangle-attn: reads no key after a block");
  refused({"--model", "bert-tiny", "--sparse-mode", "6"}, "is for decoders");
}

TEST(AttentionOptions, GiveTheBiasOfEachTypeOfAlibi) {
  const auto of = [](const std::vector<std::string>& flags) {
    std::vector<std::string> all{"--position-embedding-type", "alibi"};
    all.insert(all.end(), flags.begin(), flags.end());
    return attention_of(all);
  };
  const std::string type = "--alibi-fusion-attn-type";
  EXPECT_EQ(of({}).alibi, AlibiKind::kDifference);
  EXPECT_EQ(of({type, "0"}).alibi, AlibiKind::kDifference);
  EXPECT_EQ(of({type, "2"}).alibi, AlibiKind::kDifference);  // no key is after its query
  EXPECT_EQ(of({type, "2", "--sparse-mode", "5"}).alibi, AlibiKind::kDistance);
  EXPECT_EQ(of({type, "3"}).alibi, AlibiKind::kRootOfDistance);
  EXPECT_EQ(AttentionOptions::of(of({type, "3"})).alibi_type, 3);
  const auto message = [](const std::vector<std::string>& flags) {
    return message_of(Fault::kUsage, [&] { attention_of(flags); });
  };
  const std::vector<std::string> alibi{"--position-embedding-type", "alibi"};
  const auto with = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = alibi;
    all.insert(all.end(), flags.begin(), flags.end());
    return message(all);
  };
  EXPECT_NE(with({type, "1"}).find("got 1, wanted 0, 2 or 3 (1 multiplies the bias by the scale"),
            std::string::npos);
  EXPECT_NE(with({type, "4"}).find("got 4, wanted 0, 2 or 3"), std::string::npos);
  EXPECT_NE(message({type, "3"}).find("is for --position-embedding-type alibi"), std::string::npos);
  EXPECT_NE(with({type, "3", "--triangle-attn"}).find("--triangle-attn: takes slopes"),
            std::string::npos);
}

TEST(ModelConfig, KeepsItsStreamInFp32NextToNarrowWeights) {
  EXPECT_EQ(attention_of({"--bf16"}).stream_dtype(), DType::kBF16);
  EXPECT_EQ(attention_of({"--bf16", "--fp32-residual-connection"}).stream_dtype(), DType::kF32);
  EXPECT_EQ(attention_of({"--fp16", "--fp32-residual-connection"}).stream_dtype(), DType::kF32);
  const auto message = [](const std::vector<std::string>& flags) {
    return message_of(Fault::kUsage, [&] { attention_of(flags); });
  };
  EXPECT_NE(message({"--fp32-residual-connection"}).find("all is in fp32 without --bf16 or --fp16"),
            std::string::npos);
  EXPECT_NE(message({"--model", "bert-tiny", "--bf16", "--fp32-residual-connection",
                     "--apply-residual-connection-post-layernorm"})
                .find("--fp32-residual-connection: widens the sum of all branches"),
            std::string::npos);
}

TEST(ModelConfig, RefusesToDropEverything) {
  for (const std::string flag : {"--attention-dropout", "--hidden-dropout"}) {
    EXPECT_EQ(message_of(Fault::kUsage,
                         [&] {
                           attention_of({flag, "1"});
                         }),
              flag + ": got 1, wanted 0 <= p < 1");
    EXPECT_NO_THROW(attention_of({flag, "0"}));
  }
}

TEST(AttentionOptions, GiveTheTriangleItsBlock) {
  EXPECT_EQ(attention_of({}).attention_block, 0);
  EXPECT_EQ(attention_of({"--triangle-attn"}).attention_block, 512);
  EXPECT_EQ(attention_of({"--triangle-attn", "--triangle-block-size", "7"}).attention_block, 7);
  const auto message = [](const std::vector<std::string>& flags) {
    return message_of(Fault::kUsage, [&] { attention_of(flags); });
  };
  EXPECT_NE(message({"--triangle-attn", "--use-flash-attn"}).find("--use-flash-attn"),
            std::string::npos);
  EXPECT_NE(message({"--triangle-attn", "--triangle-block-size", "0"}).find("got 0, wanted 1 to"),
            std::string::npos);
  EXPECT_NE(message({"--triangle-block-size", "64"}).find("--triangle-attn, which is not given"),
            std::string::npos);
}

TEST(AttentionOptions, ChooseThePositions) {
  EXPECT_EQ(attention_of({"--position-embedding-type", "rope"}).positions, PositionKind::kRotary);
  EXPECT_EQ(attention_of({"--position-embedding-type", "alibi"}).positions, PositionKind::kAlibi);
  const ModelConfig none = attention_of({"--position-embedding-type", "none"});
  EXPECT_EQ(none.positions, PositionKind::kNone);
  // The table of positions is gone with them.
  EXPECT_EQ(attention_of({}).parameters() - none.parameters(), none.max_positions * none.hidden);
}

TEST(ModelConfig, CountsTheFlopsOfTheWindowAlone) {
  const auto attention = [](const std::vector<std::string>& flags) {
    const ModelConfig config = attention_of(flags);
    // All but attention does not depend on the sequence: the difference to none of it.
    return (config.forward_flops_per_token(100) -
            attention_of({"--pre-tockens", "0"}).forward_flops_per_token(1e9)) /
           static_cast<double>(config.layers * 4 * config.heads * config.head_size);
  };
  // Per token: half of 100 keys; all 100 when the window holds them; with w of them, w - w^2 / 200.
  EXPECT_NEAR(attention({}), 50 - 1, 1e-6);
  EXPECT_NEAR(attention({"--pre-tockens", "99"}), 50 - 1, 1e-6);
  EXPECT_NEAR(attention({"--pre-tockens", "9"}), 10 - 0.5 - 1, 1e-6);
}

}  // namespace
}  // namespace piton
