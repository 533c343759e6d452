// The magnitudes of new adapters are the lengths of the rows of the weights, in any run.
#include "adapters/magnitude_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/merged_source.h"
#include "support/errors.h"
#include "support/golden_lora.h"

namespace piton {
namespace {

using test::LoraFiles;

Adapters of_query() {
  Adapters adapters;
  adapters.shapes = {{"layers.1.attention.qkv", {2, 1.5, true}}, {"layers.0.mlp.up", {2, 1.5}}};
  return adapters;
}

TEST(MagnitudeSource, HasTheLengthsOfTheRowsOfWeights) {
  LoraFiles files("gpt2");
  MagnitudeSource source(files.base, of_query());
  const std::vector<CanonicalTensor> tensors = source.tensors(TensorKind::kWeight);
  ASSERT_EQ(tensors.size(), 3U);  // query, key and value; the other adapter has none
  EXPECT_TRUE(source.tensors(TensorKind::kOptimizer).empty());
  const CanonicalTensor& query = tensors[1];
  EXPECT_EQ(query.name, "layers.1.attention.query.lora_magnitude");
  const std::int64_t rows = query.shape[0];
  const auto w = test::values_of(
      files.base,
      {.name = "layers.1.attention.query.weight", .dtype = DType::kF32, .shape = {rows, rows}});
  const auto all = test::values_of(source, query);
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += w[row * rows + i] * w[row * rows + i];
    EXPECT_DOUBLE_EQ(all[row], std::sqrt(sum));
  }
  std::vector<double> some(3);
  source.read(query.name, {{5}, {7}, 2, 5}, DType::kF64, reinterpret_cast<std::byte*>(some.data()));
  EXPECT_EQ(some, std::vector<double>(all.begin() + 7, all.begin() + 10));
}

TEST(MagnitudeSource, RefusesLinearsThatTheModelLacks) {
  LoraFiles files("gpt2");
  Adapters other;
  other.shapes = {{"layers.0.mlp.gate", {2, 1, true}}};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { MagnitudeSource(files.base, other); }),
              testing::HasSubstr("has no layers.0.mlp.gate"));
}

}  // namespace
}  // namespace piton
