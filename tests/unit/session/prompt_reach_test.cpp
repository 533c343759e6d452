// The last key that the tokens of prompts see.
#include "session/prompt_reach.h"

#include <gmock/gmock.h>

namespace piton {
namespace {

using testing::ElementsAre;

MicroBatch rows(std::int64_t samples, const std::vector<std::int32_t>& labels) {
  MicroBatch batch{.samples = samples,
                   .sequence = static_cast<std::int64_t>(labels.size()) / samples};
  batch.labels = labels;
  for (const std::int32_t label : labels) batch.loss_mask.push_back(label >= 0 ? 1.0F : 0.0F);
  return batch;
}

TEST(PromptReach, IsTheFirstRowOfEachSampleWithALabel) {
  EXPECT_THAT(prompt_reach(rows(3, {-100, -100, 7, 8,  //
                                    5, 6, 7, 8,        //
                                    -100, -100, -100, -100})),
              ElementsAre(2, 2, 2, 2, 0, 0, 0, 0, 0, 1, 2, 3));
  MicroBatch unweighted = rows(1, {4, 5, 6});
  unweighted.loss_mask = {0, 1, 1};
  EXPECT_THAT(prompt_reach(unweighted), ElementsAre(1, 1, 1));
}

TEST(PromptReach, IsOfEachDocumentOfAPackedRow) {
  MicroBatch batch = rows(2, {-100, 3, -100, -100, 9, 9, 2, -100, -100, -100, -100, 3});
  batch.segments = {0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1};
  EXPECT_THAT(prompt_reach(batch), ElementsAre(1, 1, 4, 4, 4, 4, 0, 5, 5, 5, 5, 5));
}

// No row sees what a row of its document predicts before it is predicted.
TEST(PromptReach, ShowsNoTokenThatIsPredicted) {
  MicroBatch batch = rows(1, {-100, -100, 1, -100, 2, 3, -100, 4});
  batch.segments = {0, 0, 0, 0, 0, 1, 1, 1};
  const std::vector<std::int32_t> reach = prompt_reach(batch);
  for (std::int32_t row = 0; row < 8; ++row) {
    if (batch.labels[row] < 0) continue;
    EXPECT_LE(reach[row], row) << row;
  }
}

}  // namespace
}  // namespace piton
