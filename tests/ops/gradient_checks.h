// Compares the backward of every forward call with central differences in fp64.
//
// The loss is the sum of the forward's output times fixed random numbers, so backward with these
// numbers as the output's gradient gives the analytic gradient.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace piton::test {

struct GradientCheck {
  std::string name;
  // Success if every gradient that backward gives is the slope of the loss that forward gives.
  std::function<::testing::AssertionResult(Kernels&)> run;
};

// `kernels` of a check compute on host tensors of fp64.
std::vector<GradientCheck> gradient_checks();

}  // namespace piton::test
