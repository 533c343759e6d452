// Every element has one owner, parts are equal, and padding is small.
#include "parallel/shard_units.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "support/thread_world.h"

namespace piton {
namespace {

// Parameters of these sizes as one rank of `ranks` sees them.
struct Side {
  Side(World& world, const std::vector<std::int64_t>& sizes)
      : mesh(world, mesh_sizes(world.size())) {
    for (const std::int64_t size : sizes) {
      Parameter parameter;
      parameter.name = "p" + std::to_string(parameters.all().size());
      parameter.shape = {size};
      parameter.placement[Axis::kData].gradient_is_partial = true;
      parameters.add(std::move(parameter));
    }
    groups = make_reduction_groups(parameters.all(), mesh);
  }
  static MeshSizes mesh_sizes(int data) {
    MeshSizes sizes;
    sizes[Axis::kData] = data;
    return sizes;
  }
  std::vector<ShardUnit> units(const UnitRules& rules) {
    return make_shard_units(parameters.all(), groups, rules);
  }

  Mesh mesh;
  ParameterList parameters;
  ReductionGroups groups;
};

const std::vector<std::int64_t> kSizes = {50'021, 1, 16'384, 200, 77, 3};

// How often each element of each parameter is owned, over all ranks.
std::vector<std::vector<int>> owners(int ranks, const UnitRules& rules) {
  std::vector<std::vector<int>> count;
  for (const std::int64_t size : kSizes) count.emplace_back(size);
  std::mutex mutex;
  test::run_ranks(ranks, [&](World& world) {
    Side side(world, kSizes);
    const std::vector<ShardUnit> units = side.units(rules);
    const std::scoped_lock lock(mutex);
    for (const ShardSpan& span : owned_spans(units)) {
      const auto index = std::stoul(span.parameter->name.substr(1));
      for (std::int64_t i = 0; i < span.size; ++i) ++count[index][span.parameter_offset + i];
      const ShardUnit& unit = units[span.unit];
      EXPECT_GE(span.unit_begin, unit.own_begin());
      EXPECT_LE(span.unit_begin + span.size, unit.own_begin() + unit.part_size());
      EXPECT_EQ(span.parameter_offset % kUnitAlignment, 0);
      EXPECT_EQ(span.unit_begin % kUnitAlignment, 0);
    }
  });
  return count;
}

TEST(ShardUnits, GiveEveryElementToOneRank) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const std::int64_t bucket_bytes : {0, 4096, 1 << 20}) {
      for (const CutPolicy cut : {CutPolicy::kEven, CutPolicy::kWholeParameters}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, buckets of " << bucket_bytes);
        for (const auto& of_parameter : owners(ranks, {.bucket_bytes = bucket_bytes, .cut = cut})) {
          for (const int count : of_parameter) ASSERT_EQ(count, 1);
        }
      }
    }
  }
}

// Of two chunks on a stage, the later one goes back first: its units come first, and are complete
// while the other chunk still goes back.
TEST(ShardUnits, EndWithTheirChunk) {
  test::run_ranks(2, [&](World& world) {
    Side side(world, kSizes);
    const std::vector<Parameter*> all = side.parameters.all();
    for (std::size_t i = 0; i < all.size(); ++i) all[i]->chunk = i < 3 ? 0 : 2;
    const std::vector<ShardUnit> units = side.units({.bucket_bytes = 1 << 30});
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0].entries.size(), 3U);
    for (const UnitEntry& entry : units[0].entries) EXPECT_EQ(entry.parameter->chunk, 2);
    for (const UnitEntry& entry : units[1].entries) EXPECT_EQ(entry.parameter->chunk, 0);
  });
}

TEST(ShardUnits, HaveEqualPartsAndLittlePadding) {
  test::run_ranks(4, [&](World& world) {
    Side side(world, kSizes);
    for (const std::int64_t bucket_bytes : {0, 4096, 1 << 20}) {
      for (const ShardUnit& unit : side.units({.bucket_bytes = bucket_bytes})) {
        EXPECT_EQ(unit.parts, 4);
        EXPECT_EQ(unit.own, world.rank());
        EXPECT_EQ(unit.size % (4 * kUnitAlignment), 0);
        std::int64_t elements = 0;
        for (const UnitEntry& entry : unit.entries) elements += entry.size;
        const auto entries = static_cast<std::int64_t>(unit.entries.size());
        EXPECT_LT(unit.size - elements, kUnitAlignment * (entries + 4));
      }
    }
  });
}

TEST(ShardUnits, AreClosedWhenTheyAreFullAndComeFromTheLastParameter) {
  test::run_ranks(1, [&](World& world) {
    Side side(world, {100, 100, 100, 1000, 10});
    const std::vector<ShardUnit> units = side.units({.bucket_bytes = 1200});
    ASSERT_EQ(units.size(), 2);
    const auto names = [](const ShardUnit& unit) {
      std::string names;
      for (const UnitEntry& entry : unit.entries) names += entry.parameter->name;
      return names;
    };
    EXPECT_EQ(names(units[0]), "p3p4");
    EXPECT_EQ(names(units[1]), "p0p1p2");
    EXPECT_EQ(units[1].entries[2].begin, 2 * 112);
    EXPECT_EQ(side.units({}).size(), 5) << "one for each parameter";
    EXPECT_EQ(side.units({.sharded = false})[0].parts, 1);
  });
}

TEST(ShardUnits, OfWholeParametersCutNone) {
  test::run_ranks(3, [&](World& world) {
    Side side(world, {500, 300, 200, 260, 40});
    const std::vector<ShardUnit> units =
        side.units({.bucket_bytes = 1 << 20, .cut = CutPolicy::kWholeParameters});
    ASSERT_EQ(units.size(), 1);
    for (const ShardSpan& span : owned_spans(units)) {
      EXPECT_EQ(span.parameter_offset, 0);
      EXPECT_EQ(span.size, span.parameter->elements());
    }
    EXPECT_EQ(units[0].part_size(), 512) << "500 | 300 + 40 | 260 + 200, aligned";
  });
}

// Tables and vectors are cut evenly, in separate units from matrices.
TEST(ShardUnits, OfWholeMatricesCutTheOthersEvenly) {
  test::run_ranks(2, [&](World& world) {
    Mesh mesh(world, Side::mesh_sizes(2));
    ParameterList parameters;
    const auto add = [&](const std::string& name, const Shape& shape, bool table) {
      Parameter parameter;
      parameter.name = name;
      parameter.shape = shape;
      parameter.is_table = table;
      parameter.pieces.push_back({.name = name, .global = shape, .extent = shape});
      parameter.placement[Axis::kData].gradient_is_partial = true;
      parameters.add(std::move(parameter));
    };
    add("table", {64, 16}, true);
    add("a", {16, 16}, false);
    add("gain", {16}, false);
    add("b", {16, 32}, false);
    add("c", {16, 15}, false);
    const ReductionGroups groups = make_reduction_groups(parameters.all(), mesh);
    const auto units = make_shard_units(
        parameters.all(), groups, {.bucket_bytes = 1 << 20, .cut = CutPolicy::kWholeMatrices});
    ASSERT_EQ(units.size(), 2);
    EXPECT_EQ(units[0].cut, CutPolicy::kWholeParameters);
    EXPECT_EQ(units[0].size, 2 * 512) << "b | a + c, aligned";
    EXPECT_EQ(units[1].cut, CutPolicy::kEven);
    EXPECT_EQ(units[1].size, 64 * 16 + 16 + 16) << "and padding";
    for (const ShardSpan& span : owned_spans(units)) {
      if (span.unit == 0) {
        EXPECT_EQ(span.size, span.parameter->elements());
      }
    }
  });
}

// Dense parameters and experts of one stage: each kind in units of its own group.
TEST(ShardUnits, BelongToOneReductionGroup) {
  test::run_ranks(4, [&](World& world) {
    MeshSizes sizes;
    sizes[Axis::kExpert] = 2;
    sizes[Axis::kData] = 2;
    Mesh mesh(world, sizes);
    ParameterList parameters;
    for (const bool expert : {false, true, false, true}) {
      Parameter parameter;
      parameter.name = "p" + std::to_string(parameters.all().size());
      parameter.shape = {64};
      parameter.placement[Axis::kData].gradient_is_partial = true;
      if (expert) {
        parameter.placement[Axis::kExpert].kind = AxisPlacement::Kind::kSplit;
      } else {
        parameter.placement[Axis::kExpert].gradient_is_partial = true;
      }
      parameters.add(std::move(parameter));
    }
    const ReductionGroups groups = make_reduction_groups(parameters.all(), mesh);
    const auto units = make_shard_units(parameters.all(), groups, {.bucket_bytes = 1 << 20});
    ASSERT_EQ(units.size(), 2);
    EXPECT_EQ(units[0].parts, 2) << "experts over data";
    EXPECT_EQ(units[1].parts, 4) << "dense over data and expert";
    for (const ShardUnit& unit : units) {
      EXPECT_NE(unit.group->gradients, unit.group->values);
      EXPECT_EQ(unit.entries.size(), 2);
    }
  });
}

}  // namespace
}  // namespace piton
