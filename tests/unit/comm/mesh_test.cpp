#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "device/host_device.h"
#include "support/sampled.h"

namespace piton {
namespace {

// Says who it is; its groups only know their ranks.
class NumberedWorld final : public World {
 public:
  NumberedWorld(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int host_rank() const override { return rank_; }
  int host_size() const override { return size_; }
  std::unique_ptr<Communicator> make_group(std::span<const int> ranks,
                                           const std::string& name) override {
    made.push_back({name, {ranks.begin(), ranks.end()}});
    return make_single_communicator(device_, name);
  }
  [[noreturn]] void abort(int) override { std::abort(); }
  TrafficCounts traffic() const override { return {}; }

  struct Made {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<Made> made;

 private:
  HostDevice device_;
  int rank_;
  int size_;
};

MeshSizes sizes_of(int tensor, int pipeline, int data, int context = 1, int expert = 1) {
  MeshSizes sizes;
  sizes[Axis::kTensor] = tensor;
  sizes[Axis::kContext] = context;
  sizes[Axis::kExpert] = expert;
  sizes[Axis::kData] = data;
  sizes[Axis::kPipeline] = pipeline;
  return sizes;
}

// Calls `look` with all sizes of the five axes whose product is at most `most`.
template <typename F>
void for_all_meshes(int most, F look) {
  for (int t = 1; t <= most; ++t) {
    for (int c = 1; t * c <= most; ++c) {
      for (int e = 1; t * c * e <= most; ++e) {
        for (int d = 1; t * c * e * d <= most; ++d) {
          for (int p = 1; t * c * e * d * p <= most; ++p) look(sizes_of(t, p, d, c, e));
        }
      }
    }
  }
}

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

TEST(Mesh, CutsAGroupIntoRunsAndAcrossThem) {
  // Tensor 2, data 4: the data group of rank 3 is 1 3 5 7.
  NumberedWorld world(3, 8);
  Mesh mesh(world, sizes_of(2, 1, 4));
  mesh.part_of_group(axes(Axis::kData), {.parts = 2}, "values");
  mesh.part_of_group(axes(Axis::kData), {.parts = 2, .across = true}, "values");
  mesh.part_of_group(axes(Axis::kData), {.parts = 4}, "values");
  mesh.part_of_group(axes(Axis::kData), {.parts = 2}, "values");  // made already
  ASSERT_EQ(world.made.size(), 3U);
  EXPECT_EQ(world.made[0].ranks, (std::vector<int>{1, 3}));
  EXPECT_EQ(world.made[1].ranks, (std::vector<int>{3, 7}));
  EXPECT_EQ(world.made[2].ranks, (std::vector<int>{3}));
}

TEST(Mesh, StandsAsInItsTable) {
  const int tensor[] = {0, 1, 0, 1, 0, 1, 0, 1};
  const int data[] = {0, 0, 1, 1, 0, 0, 1, 1};
  const int pipeline[] = {0, 0, 0, 0, 1, 1, 1, 1};
  for (int rank = 0; rank < 8; ++rank) {
    NumberedWorld world(rank, 8);
    const Mesh mesh(world, sizes_of(2, 2, 2));
    EXPECT_EQ(mesh.coordinate(Axis::kTensor), tensor[rank]);
    EXPECT_EQ(mesh.coordinate(Axis::kData), data[rank]);
    EXPECT_EQ(mesh.coordinate(Axis::kPipeline), pipeline[rank]);
    EXPECT_EQ(mesh.coordinate(Axis::kContext), 0);
  }
  NumberedWorld world(5, 8);
  const Mesh mesh(world, sizes_of(2, 2, 2));
  EXPECT_EQ(mesh.members(axes(Axis::kTensor)), (std::vector<int>{4, 5}));
  EXPECT_EQ(mesh.members(axes(Axis::kData)), (std::vector<int>{5, 7}));
  EXPECT_EQ(mesh.members(axes(Axis::kPipeline)), (std::vector<int>{1, 5}));
  EXPECT_EQ(mesh.members(axes(Axis::kTensor, Axis::kData)), (std::vector<int>{4, 5, 6, 7}));
}

TEST(Mesh, GroupsOfEveryAxisPartitionTheWorldAndCrossInOneRank) {
  for_all_meshes(test::nightly() ? 64 : 32, [](const MeshSizes& sizes) {
    const int ranks = sizes.ranks();
    std::vector<std::vector<std::vector<int>>> groups(kAxes);  // of each axis, of each rank
    for (int rank = 0; rank < ranks; ++rank) {
      NumberedWorld world(rank, ranks);
      const Mesh mesh(world, sizes);
      std::array<int, kAxes> here{};
      for (int a = 0; a < kAxes; ++a) {
        groups[a].push_back(mesh.members(axes(static_cast<Axis>(a))));
        here[a] = mesh.coordinate(static_cast<Axis>(a));
      }
      ASSERT_EQ(mesh.rank_at(here), rank);
    }
    for (int a = 0; a < kAxes; ++a) {
      std::set<std::vector<int>> different(groups[a].begin(), groups[a].end());
      std::vector<int> covered;
      for (const auto& group : different) {
        ASSERT_EQ(std::ssize(group), sizes.size[a]);
        ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
        covered.insert(covered.end(), group.begin(), group.end());
      }
      std::sort(covered.begin(), covered.end());
      std::vector<int> all(ranks);
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(covered, all);
      for (int b = 0; b < a; ++b) {
        for (int rank = 0; rank < ranks; ++rank) {
          ASSERT_EQ(common(groups[a][rank], groups[b][rank]), std::vector<int>{rank});
        }
      }
    }
  });
}

TEST(Mesh, ASetOfAxesIsTheProductOfItsAxes) {
  NumberedWorld world(13, 32);
  const Mesh mesh(world, sizes_of(2, 2, 2, 2, 2));
  for (unsigned set = 0; set < 32; ++set) {
    const auto members = mesh.members(static_cast<AxisSet>(set));
    EXPECT_EQ(members.size(), 1U << std::popcount(set));
    EXPECT_TRUE(std::binary_search(members.begin(), members.end(), 13));
  }
}

TEST(Mesh, MakesEachGroupOnceAndNamesItByItsAxes) {
  NumberedWorld world(3, 8);
  Mesh mesh(world, sizes_of(2, 2, 2));
  Communicator& first = mesh.group(Axis::kTensor);
  EXPECT_EQ(&mesh.group(Axis::kTensor), &first);
  EXPECT_EQ(first.name(), "tensor");
  mesh.group(axes(Axis::kData, Axis::kTensor));
  ASSERT_EQ(world.made.size(), 2U);
  EXPECT_EQ(world.made[0].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(world.made[1].name, "tensor+data");
  EXPECT_EQ(world.made[1].ranks, (std::vector<int>{0, 1, 2, 3}));
}

TEST(Mesh, StagesAreRanksOfThePipelineThroughThisOne) {
  NumberedWorld world(1, 8);
  Mesh mesh(world, sizes_of(2, 4, 1));
  Communicator& tied = mesh.stages({0, 3});
  EXPECT_EQ(&mesh.stages({0, 3}), &tied);
  ASSERT_EQ(world.made.size(), 1U);
  EXPECT_EQ(world.made[0].ranks, (std::vector<int>{1, 7}));
}

std::string refusal(int world_size, const MeshSizes& sizes) {
  NumberedWorld world(0, world_size);
  try {
    const Mesh mesh(world, sizes);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    return error.what();
  }
  return "taken";
}

TEST(Mesh, RefusesAnotherNumberOfProcessesAndSaysWhatWouldDo) {
  EXPECT_EQ(
      refusal(12, sizes_of(4, 2, 1)),
      "mesh: 12 processes cannot form tensor 4 x pipeline 2; start a multiple of 8, or change "
      "--tensor-model-parallel-size or --pipeline-model-parallel-size");
  EXPECT_EQ(refusal(3, sizes_of(1, 1, 1)), "mesh: 3 processes cannot form a mesh of one; start 1");
  EXPECT_EQ(refusal(2, sizes_of(0, 1, 1)),
            "mesh: tensor is 0, wanted at least 1; change --tensor-model-parallel-size");
  EXPECT_EQ(refusal(8, sizes_of(2, 2, 2)), "taken");
}

}  // namespace
}  // namespace piton
