#include "session/sequence_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace piton {
namespace {

using testing::ElementsAre;

MicroBatch two_samples() {
  MicroBatch batch{.samples = 2, .sequence = 8, .sample_index = 6};
  for (std::int32_t i = 0; i < 16; ++i) {
    batch.tokens.push_back(i);
    batch.labels.push_back(100 + i);
    batch.loss_mask.push_back(static_cast<float>(i % 2));
    batch.positions.push_back(i % 8);
    batch.segments.push_back(i / 3);
  }
  return batch;
}

TEST(SequencePart, HasTwoStretchesOfEachSample) {
  const MicroBatch batch = two_samples();
  const MicroBatch first = part_of_sequence(batch, {0, 2});
  EXPECT_EQ(first.samples, 2);
  EXPECT_EQ(first.sequence, 4);
  EXPECT_EQ(first.sample_index, 6);
  EXPECT_THAT(first.tokens, ElementsAre(0, 1, 6, 7, 8, 9, 14, 15));
  EXPECT_THAT(first.labels, ElementsAre(100, 101, 106, 107, 108, 109, 114, 115));
  EXPECT_THAT(first.positions, ElementsAre(0, 1, 6, 7, 0, 1, 6, 7));
  EXPECT_EQ(first.segments, batch.segments);
  EXPECT_THAT(part_of_sequence(batch, {1, 2}).tokens, ElementsAre(2, 3, 4, 5, 10, 11, 12, 13));
  std::vector<float> numbers(16);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  EXPECT_THAT(rows_of_part(numbers, batch, {1, 2}), ElementsAre(2, 3, 4, 5, 10, 11, 12, 13));
  EXPECT_THAT(rows_of_part(positions_of_rows(batch), batch, {0, 2}),
              ElementsAre(0, 1, 6, 7, 0, 1, 6, 7));
}

TEST(SequencePart, TakesEachTokenOnce) {
  const MicroBatch batch = two_samples();
  for (const int ranks : {1, 2, 4}) {
    double tokens = 0;
    for (int rank = 0; rank < ranks; ++rank)
      tokens += part_of_sequence(batch, {rank, ranks}).loss_tokens();
    EXPECT_EQ(tokens, batch.loss_tokens());
  }
}

TEST(SequencePart, OrdersRowsByStretch) {
  const MicroBatch batch = two_samples();
  EXPECT_THAT(by_stretch(positions_of_rows(batch), batch, 4),
              ElementsAre(0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7));
  EXPECT_THAT(by_stretch(batch.tokens, batch, 4),
              ElementsAre(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
}

}  // namespace
}  // namespace piton
