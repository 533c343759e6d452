#include "parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace piton {
namespace {

std::vector<std::unique_ptr<Parameter>> parameters_of(const std::vector<std::int64_t>& sizes) {
  std::vector<std::unique_ptr<Parameter>> parameters;
  for (const std::int64_t size : sizes) {
    auto parameter = std::make_unique<Parameter>();
    parameter->name = "p" + std::to_string(parameters.size());
    parameter->shape = {size};
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

FlatLayout layout_of(const std::vector<std::unique_ptr<Parameter>>& parameters, int ranks) {
  std::vector<Parameter*> list;
  for (const auto& parameter : parameters) list.push_back(parameter.get());
  return make_flat_layout(list, ranks);
}

const std::vector<std::vector<std::int64_t>> kSizes = {{1},
                                                       {17, 33},
                                                       {3 * kNormBlock + 5, 1, kNormBlock, 200},
                                                       {1000000, 64, 64, 4096, 777777},
                                                       {16, 16, 16, 16, 16, 16, 16}};

TEST(FlatLayout, AlignsParametersAndKeepsTheirOrder) {
  const auto parameters = parameters_of({1, 16, 17, 5});
  const FlatLayout layout = layout_of(parameters, 1);
  ASSERT_EQ(layout.entries.size(), 4U);
  EXPECT_EQ(layout.entries[0].begin, 0);
  EXPECT_EQ(layout.entries[1].begin, 16);
  EXPECT_EQ(layout.entries[2].begin, 32);
  EXPECT_EQ(layout.entries[3].begin, 64);
  EXPECT_EQ(layout.entries[3].size, 5);
  EXPECT_EQ(layout.size, 80);
}

TEST(FlatLayout, GivesEveryElementToOneRank) {
  for (const auto& sizes : kSizes) {
    const auto parameters = parameters_of(sizes);
    for (const int ranks : {1, 2, 3, 4, 7, 8}) {
      const FlatLayout layout = layout_of(parameters, ranks);
      std::vector<int> owners(layout.size, 0);
      for (int rank = 0; rank < ranks; ++rank) {
        for (const FlatSpan& span : spans_of_shard(layout, rank)) {
          for (std::int64_t i = 0; i < span.size; ++i) ++owners[span.flat_begin + i];
        }
      }
      for (const FlatEntry& entry : layout.entries) {
        for (std::int64_t i = 0; i < entry.size; ++i) ASSERT_EQ(owners[entry.begin + i], 1);
      }
    }
  }
}

TEST(FlatLayout, CutsShardsAtBlockEdges) {
  for (const auto& sizes : kSizes) {
    const auto parameters = parameters_of(sizes);
    for (const int ranks : {2, 3, 4, 8}) {
      const FlatLayout layout = layout_of(parameters, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        for (const FlatSpan& span : spans_of_shard(layout, rank)) {
          EXPECT_EQ(span.parameter_offset % kNormBlock, 0);
          const bool to_the_end = span.parameter_offset + span.size == span.parameter->elements();
          EXPECT_TRUE(to_the_end || span.size % kNormBlock == 0);
        }
      }
    }
  }
}

TEST(FlatLayout, CutsNearlyEqually) {
  const auto parameters = parameters_of({1000000, 64, 64, 4096, 777777});
  for (const int ranks : {2, 3, 4, 8}) {
    const FlatLayout layout = layout_of(parameters, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const double share = static_cast<double>(layout.size) / ranks;
      EXPECT_NEAR(static_cast<double>(layout.shards[rank + 1] - layout.shards[rank]), share,
                  kNormBlock);
    }
  }
}

TEST(FlatLayout, WithMoreRanksThanBlocksLeavesShardsEmpty) {
  const auto parameters = parameters_of({100});
  const FlatLayout layout = layout_of(parameters, 4);
  std::int64_t owned = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (const FlatSpan& span : spans_of_shard(layout, rank)) owned += span.size;
  }
  EXPECT_EQ(owned, 100);
  EXPECT_EQ(layout_of({}, 4).size, 0);
}

TEST(FlatLayout, TellsTheCutsInsideARange) {
  const auto parameters = parameters_of({2 * kNormBlock, 2 * kNormBlock});
  const FlatLayout layout = layout_of(parameters, 4);
  const std::vector<std::int64_t> want = {0, 0, 0, kNormBlock, 2 * kNormBlock};
  EXPECT_EQ(cuts_within(layout, 2 * kNormBlock, 2 * kNormBlock), want);
}

}  // namespace
}  // namespace piton
