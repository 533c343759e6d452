// Models that flags make, and their sizes.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/canonical_tensors.h"
#include "model/config.h"

namespace piton::test {

// The preset `base`, or no preset, with these flags. The flags of the model make it again.
inline ModelConfig made_model(std::vector<std::string> flags, const std::string& base) {
  if (!base.empty()) flags.insert(flags.begin(), {"--model", base});
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  EXPECT_TRUE(set.parse(flags).empty());
  const ModelConfig config = options.resolve(std::nullopt);
  ModelOptions again = ModelOptions::of(config);
  EXPECT_EQ(again.resolve(std::nullopt), config);
  options.settle(config);
  EXPECT_EQ(options.resolve(std::nullopt), config);
  return config;
}

// The number of weights, by the tensors.
inline std::int64_t elements_of(const ModelConfig& config) {
  std::int64_t sum = 0;
  for (const CanonicalShape& one : canonical_tensors(config)) sum += one.shape.elements();
  return sum;
}

}  // namespace piton::test
