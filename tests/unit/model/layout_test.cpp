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
