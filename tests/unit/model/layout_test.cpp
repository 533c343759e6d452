#include "model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace piton {
namespace {

using testing::ElementsAre;

TEST(LayerDivision, GivesTheFirstChunksOneMore) {
  EXPECT_THAT((LayerDivision{8, 2}.counts()), ElementsAre(4, 4));
  EXPECT_THAT((LayerDivision{11, 4}.counts()), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT((LayerDivision{13, 4}.counts()), ElementsAre(4, 3, 3, 3));
  EXPECT_THAT((LayerDivision{3, 3}.counts()), ElementsAre(1, 1, 1));
  EXPECT_EQ((LayerDivision{13, 4}.of_chunk(2)), (LayerRange{7, 10}));
}

TEST(LayerDivision, TakesTheNumbersThatAreGiven) {
  const LayerDivision given{12, 4, {2, 4, 5, 1}};
  EXPECT_THAT(given.counts(), ElementsAre(2, 4, 5, 1));
  EXPECT_EQ(given.of_chunk(0), (LayerRange{0, 2}));
  EXPECT_EQ(given.of_chunk(2), (LayerRange{6, 11}));
  EXPECT_EQ(given.of_chunk(3), (LayerRange{11, 12}));
  EXPECT_EQ(given.most(), 5);
}

TEST(LayerDivision, KnowsTheLargestChunkOfEachStage) {
  EXPECT_THAT((LayerDivision{10, 4}.most_of_stages({0, 1, 0, 1})), ElementsAre(3, 3));
  EXPECT_THAT((LayerDivision{12, 4, {2, 4, 5, 1}}.most_of_stages({0, 1, 1, 0})), ElementsAre(2, 5));
}

TEST(LayerDivision, OfAnEncoderAndADecoderHasTheEncodersStagesFirst) {
  ModelConfig config;
  config.layers = 5;
  EXPECT_THAT(LayerDivision::of(config, {}, 3).counts(), ElementsAre(2, 2, 1));
  config.encoder_decoder = EncoderDecoderFacts{.encoder_layers = 3};
  EXPECT_THAT(LayerDivision::of(config, {}, 1).counts(), ElementsAre(5));
  EXPECT_THAT(LayerDivision::of(config, {.split_stage = 1}, 3).counts(), ElementsAre(3, 3, 2));
  EXPECT_THAT(LayerDivision::of(config, {.split_stage = 2}, 4).counts(), ElementsAre(2, 1, 3, 2));
  EXPECT_EQ(LayerDivision::of(config, {.split_stage = 2}, 4).of_chunk(2), (LayerRange{3, 6}));
  const LayoutOptions given{.layers_of_chunks = {1, 2, 4, 1}, .split_stage = 2};
  EXPECT_THAT(LayerDivision::of(config, given, 4).counts(), ElementsAre(1, 2, 4, 1));
}

TEST(LayerDivision, GivesEachLayerToOneChunkInOrder) {
  for (std::int64_t layers = 1; layers <= 20; ++layers) {
    for (int chunks = 1; chunks <= layers; ++chunks) {
      const LayerDivision division{layers, chunks};
      std::int64_t next = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        EXPECT_EQ(division.of_chunk(chunk).begin, next);
        next = division.of_chunk(chunk).end;
        EXPECT_LE(division.of_chunk(chunk).size(), division.most());
        EXPECT_GE(division.of_chunk(chunk).size(), division.most() - 1);
      }
      EXPECT_EQ(next, layers);
    }
  }
}

}  // namespace
}  // namespace piton
