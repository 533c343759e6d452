#include "data/samples/blended_dataset.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

// numpy.sum(1 / numpy.arange(1, 201)) is 5.878030948121444; one by one they give ...446.
TEST(BlendWeights, OfManyCorporaAreAddedInTheOrderOfNumpy) {
  std::vector<double> weights;
  for (int i = 1; i <= 200; ++i) weights.push_back(1.0 / i);
  const std::vector<double> shares = normalized(weights);
  ASSERT_EQ(shares.size(), weights.size());
  for (std::size_t i = 0; i < shares.size(); ++i)
    EXPECT_EQ(shares[i], weights[i] / 5.878030948121444) << i;
}

}  // namespace
}  // namespace piton
