// The gradients of the reference back end equal finite differences.
#include <gtest/gtest.h>

#include "gradient_checks.h"
#include "kernels/reference/kernels.h"

namespace piton::test {
namespace {

TEST(ReferenceKernels, GiveGradientsThatAreTheSlopesOfTheirForwardCalls) {
  const auto kernels = make_reference_kernels();
  for (const GradientCheck& check : gradient_checks()) {
    EXPECT_TRUE(check.run(*kernels)) << check.name;
  }
}

}  // namespace
}  // namespace piton::test
