// Compares tensors and reports the largest difference.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "support/tensors.h"
#include "support/tolerance.h"

namespace piton::test {

// Same shape, and |actual - expected| <= absolute + relative |expected| everywhere; infinities must
// be equal, and a NaN in `actual` always differs.
inline ::testing::AssertionResult close(const Tensor& actual, const Tensor& expected,
                                        const Tolerance& tolerance) {
  if (!(actual.shape() == expected.shape())) {
    return ::testing::AssertionFailure()
           << "got " << to_string(actual) << ", wanted " << to_string(expected);
  }
  const auto got = values(actual);
  const auto wanted = values(expected);
  double worst = 0;  // as a multiple of the tolerance
  std::size_t worst_index = 0;
  std::size_t failures = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    const double allowed = tolerance.absolute + tolerance.relative * std::fabs(wanted[i]);
    double excess = std::fabs(got[i] - wanted[i]) / allowed;
    if (!std::isfinite(got[i]) || !std::isfinite(wanted[i]) || std::isnan(excess)) {
      excess = std::numeric_limits<double>::infinity();
    }
    if (excess > 1) ++failures;
    if (excess > worst) {
      worst = excess;
      worst_index = i;
    }
  }
  if (failures == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << failures << " of " << got.size() << " elements of " << to_string(expected)
         << " differ; worst at index " << worst_index << ": got " << got[worst_index] << ", wanted "
         << wanted[worst_index] << ", " << worst << " times the tolerance";
}

// Equal shapes, dtypes and bits (so -0 differs from 0).
inline ::testing::AssertionResult bit_equal(const Tensor& actual, const Tensor& expected) {
  if (!(actual.shape() == expected.shape()) || actual.dtype() != expected.dtype()) {
    return ::testing::AssertionFailure()
           << "got " << to_string(actual) << ", wanted " << to_string(expected);
  }
  const auto size = size_bytes(expected.dtype());
  const auto got = offsets(actual);
  const auto wanted = offsets(expected);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(actual.raw() + got[i] * size, expected.raw() + wanted[i] * size,
                    static_cast<std::size_t>(size)) != 0) {
      return ::testing::AssertionFailure()
             << "bits differ at index " << i << ": got " << value_at(actual, got[i]) << ", wanted "
             << value_at(expected, wanted[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace piton::test
