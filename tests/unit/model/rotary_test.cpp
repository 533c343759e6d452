// Frequencies against Transformers (tests/golden/rotary.jsonl names its tool and versions), and the
// effect of the rotary flags on a model.
#include "model/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "model/config.h"
#include "support/errors.h"
#include "support/golden_rotary.h"

namespace piton {
namespace {

using Kind = RotaryScaling::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(RotaryFrequencies, AreThoseOfTransformers) {
  int scaled = 0;
  for (const test::GoldenRotary& golden : test::golden_rotary()) {
    SCOPED_TRACE(golden.line);
    scaled += golden.scaling.kind != Kind::kNone;
    const std::vector<double> got =
        rotary_frequencies(golden.base, golden.channels, golden.scaling, golden.sequence);
    ASSERT_EQ(got.size(), golden.frequencies.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], golden.frequencies[i], 1e-13 * golden.frequencies[i]);
    EXPECT_NEAR(rotary_magnitude(golden.scaling), golden.magnitude, 1e-14);
  }
  EXPECT_EQ(scaled, 15);
}

TEST(RotaryLength, ChangesOnlyWhereAnglesDo) {
  RotaryScaling scaling{.factor = 2, .original_positions = 10};
  const auto lengths = [&](Kind kind) {
    scaling.kind = kind;
    std::vector<std::int64_t> distinct;
    for (const std::int64_t length : {1, 10, 11, 12})
      distinct.push_back(rotary_length(scaling, length));
    return distinct;
  };
  EXPECT_THAT(lengths(Kind::kYarn), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(lengths(Kind::kDynamic), ElementsAre(10, 10, 11, 12));
  EXPECT_THAT(lengths(Kind::kLongrope), ElementsAre(10, 10, 11, 11));
}

ModelConfig resolve(std::vector<std::string> flags, const std::string& model = "llama-tiny") {
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  flags.insert(flags.begin(), {"--model", model});
  EXPECT_TRUE(set.parse(flags).empty());
  return options.resolve(std::nullopt);
}

TEST(RotaryOptions, GiveTheScalingThatMegatronsFlagsMean) {
  EXPECT_EQ(resolve({}).rotary_scaling.kind, Kind::kNone);
  const RotaryScaling linear =
      resolve({"--rotary-seq-len-interpolation-factor", "4"}).rotary_scaling;
  EXPECT_EQ(linear.kind, Kind::kLinear);
  EXPECT_EQ(linear.factor, 4);
  const RotaryScaling llama3 = resolve({"--use-rope-scaling"}).rotary_scaling;
  EXPECT_EQ(llama3.kind, Kind::kLlama3);
  EXPECT_EQ(llama3.factor, 8);
  EXPECT_EQ(llama3.original_positions, 8192);
  EXPECT_EQ(resolve({"--use-rope-scaling", "--rope-scaling-factor", "32"}).rotary_scaling.factor,
            32);
  const ModelConfig yarn = resolve(
      {"--rotary-scaling-type", "yarn", "--original-max-position-embeddings", "64",
       "--max-position-embeddings", "256", "--rotary-percent", "0.5", "--rotary-interleaved"});
  EXPECT_EQ(yarn.rotary_scaling.kind, Kind::kYarn);
  EXPECT_EQ(yarn.rotary_scaling.factor, 4);
  EXPECT_EQ(yarn.rotary_scaling.original_positions, 64);
  EXPECT_EQ(yarn.rotary_channels(), yarn.head_size / 2);
  EXPECT_TRUE(yarn.rotary_pairs);
  // Those of MindSpeed-LLM's scripts of DeepSeek.
  const ModelConfig betas =
      resolve({"--rotary-scaling-type", "yarn", "--rope-scaling-factor", "4",
               "--rope-scaling-original-max-position-embeddings", "16", "--rope-scaling-beta-fast",
               "8", "--rope-scaling-beta-slow", "2", "--rope-scaling-mscale", "0.707",
               "--rope-scaling-mscale-all-dim", "0.707"});
  EXPECT_EQ(betas.rotary_scaling, (RotaryScaling{.kind = Kind::kYarn,
                                                 .factor = 4,
                                                 .original_positions = 16,
                                                 .fast = 8,
                                                 .slow = 2,
                                                 .numerator = 0.707,
                                                 .denominator = 0.707}));
  const RotaryOptions stored = RotaryOptions::of(betas);
  EXPECT_EQ(stored.fast, 8);
  EXPECT_EQ(stored.slow, 2);
  ModelConfig again = resolve({});
  stored.apply(again);
  EXPECT_EQ(again.rotary_scaling, betas.rotary_scaling);
  EXPECT_FALSE(RotaryOptions::of(yarn).fast || RotaryOptions::of(yarn).slow);
  const ModelConfig skips = resolve({"--no-rope-freq", "2"});
  EXPECT_TRUE(skips.rotates(0) && !skips.rotates(1) && skips.rotates(2));
  EXPECT_EQ(ModelOptions::of(skips).rotary.no_rotary_every, 2);
}

// By the rule of Ministral 3: 1 + b ln(1 + floor(position / N)).
TEST(RotaryRows, OfQueriesGrowWithTheirPositions) {
  const ModelConfig model =
      resolve({"--rotary-scaling-type", "yarn", "--rotary-scaling-factor", "4",
               "--original-max-position-embeddings", "8", "--rotary-query-growth", "0.3"});
  EXPECT_EQ(model.rotary_scaling.query_growth, 0.3);
  const RotaryAngles keys{.base = model.rotary_base, .scaling = model.rotary_scaling};
  RotaryAngles queries = keys;
  queries.of_queries = true;
  RotaryRows of_keys(model, keys, 3);
  RotaryRows of_queries(model, queries, 3);
  const std::int64_t positions[] = {7, 8, 41};
  const double factors[] = {1, 1 + 0.3 * std::log(2.0), 1 + 0.3 * std::log(6.0)};
  for (std::int64_t row = 0; row < 3; ++row) {
    of_keys.fill(row, positions[row], 64);
    of_queries.fill(row, positions[row], 64);
    const std::int64_t half = model.rotary_channels() / 2;
    for (std::int64_t i = row * half; i < (row + 1) * half; ++i) {
      EXPECT_NEAR(of_queries.cosine.data<float>()[i],
                  factors[row] * of_keys.cosine.data<float>()[i], 1e-6);
      EXPECT_NEAR(of_queries.sine.data<float>()[i], factors[row] * of_keys.sine.data<float>()[i],
                  1e-6);
    }
  }
}

TEST(RotaryRows, OfReversedPositionsHaveOppositeAngles) {
  const ModelConfig plain = resolve({});
  const ModelConfig reversed = resolve({"--rotary-reversed"});
  RotaryRows rows(plain, {.base = 10000, .scaling = {}}, 1);
  RotaryRows opposite(reversed, {.base = 10000, .scaling = {}}, 1);
  rows.fill(0, 5, 64);
  opposite.fill(0, 5, 64);
  for (std::int64_t i = 0; i < plain.rotary_channels() / 2; ++i) {
    EXPECT_EQ(opposite.cosine.data<float>()[i], rows.cosine.data<float>()[i]);
    EXPECT_EQ(opposite.sine.data<float>()[i], -rows.sine.data<float>()[i]);
  }
}

TEST(RotaryOptions, RefuseWhatCannotBeOrIsNotRead) {
  const auto refusal = [](const std::vector<std::string>& flags,
                          const std::string& model = "llama-tiny") {
    return message_of(Fault::kUsage, [&] { resolve(flags, model); });
  };
  EXPECT_THAT(refusal({"--rotary-percent", "0.5"}, "gpt2-tiny"),
              HasSubstr("--rotary-percent: this model has no rotary positions"));
  EXPECT_THAT(refusal({"--use-rope-scaling"}, "gpt2-tiny"), HasSubstr("no rotary positions"));
  // Scripts of Bloom and Baichuan have it.
  EXPECT_EQ(resolve({"--position-embedding-type", "alibi", "--rotary-base", "5"}).positions,
            PositionKind::kAlibi);
  EXPECT_THAT(refusal({"--no-rope-freq", "2"}, "gpt2-tiny"),
              HasSubstr("--no-rope-freq: this model has no rotary positions"));
  EXPECT_THAT(refusal({"--no-rope-freq", "0"}), HasSubstr("--no-rope-freq: got 0"));
  EXPECT_THAT(refusal({"--no-rope-freq", "1000"}), HasSubstr("--no-rope-freq: got 1000"));
  EXPECT_THAT(refusal({"--rotary-percent", "0"}), HasSubstr("--rotary-percent: got 0"));
  EXPECT_THAT(refusal({"--rotary-base", "1"}), HasSubstr("--rotary-base: got 1"));
  EXPECT_EQ(resolve({"--rotary-base", "1e30"}).rotary_base, 1e30);
  EXPECT_THAT(refusal({"--rotary-base", "1.1e30"}), HasSubstr("wanted a number above 1, at most"));
  EXPECT_THAT(refusal({"--rotary-scaling-type", "yarn"}),
              HasSubstr("needs a --rotary-scaling-factor"));
  EXPECT_THAT(refusal({"--rotary-scaling-type", "linear", "--rotary-scaling-factor", "0.5"}),
              HasSubstr("--rotary-scaling-factor: got 0.5"));
  EXPECT_THAT(refusal({"--rotary-scaling-factor", "2"}),
              HasSubstr("is not used by --rotary-scaling-type"));
  EXPECT_THAT(refusal({"--original-max-position-embeddings", "2"}),
              HasSubstr("--original-max-position-embeddings"));
  EXPECT_THAT(refusal({"--use-rope-scaling", "--rotary-scaling-type", "yarn"}),
              HasSubstr("--use-rope-scaling: it means"));
  EXPECT_THAT(
      refusal({"--rotary-seq-len-interpolation-factor", "2", "--rotary-scaling-factor", "2"}),
      HasSubstr("is not used by"));
  EXPECT_EQ(refusal({"--use-rope-scaling", "--rotary-beta-fast", "8"}),
            "--rotary-beta-fast: is not used by --rotary-scaling-type llama3; leave it out");
  EXPECT_THAT(refusal({"--rotary-beta-slow", "2"}), HasSubstr("--rotary-beta-slow: is not used"));
  EXPECT_THAT(refusal({"--rotary-query-growth", "0.1"}), HasSubstr("is not used by"));
  EXPECT_THAT(refusal({"--rotary-reversed"}, "gpt2-tiny"), HasSubstr("no rotary positions"));
  const auto growth = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--rotary-scaling-type", "yarn", "--rotary-scaling-factor", "2"});
    return refusal(flags);
  };
  EXPECT_THAT(growth({"--rotary-query-growth", "-1"}), HasSubstr("--rotary-query-growth: got -1"));
  EXPECT_THAT(growth({"--rotary-query-growth", "0.1", "--rotary-percent", "0.5"}),
              HasSubstr("--rotary-query-growth: is not with --rotary-percent"));
  EXPECT_EQ(refusal({"--rotary-scaling-type", "yarn", "--rotary-scaling-factor", "2",
                     "--rotary-beta-fast", "1"}),
            "--rotary-beta-slow, --rotary-beta-fast: got 1 and 1, wanted above 0, and a larger "
            "one, at most 1e+30");
  EXPECT_THAT(refusal({"--rotary-long-factors", "1", "--use-rope-scaling"}),
              HasSubstr("--rotary-long-factors"));
  EXPECT_THAT(refusal({"--rotary-scaling-type", "longrope", "--rotary-scaling-factor", "2",
                       "--rotary-short-factors", "1", "2"}),
              HasSubstr("--rotary-short-factors: got 2 numbers, wanted 8"));
}

}  // namespace
}  // namespace piton
