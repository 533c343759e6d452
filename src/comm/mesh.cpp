#include "comm/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace piton {

namespace {

// The flag that sets the size of an axis, for messages. Data has none: its size follows from the
// number of processes and the other axes.
std::string_view flag(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "--tensor-model-parallel-size";
    case Axis::kContext:
      return "--context-parallel-size";
    case Axis::kExpert:
      return "--expert-model-parallel-size";
    case Axis::kData:
      return "the number of data-parallel ranks";
    case Axis::kPipeline:
      return "--pipeline-model-parallel-size";
  }
  PITON_ASSERT(false);
  return {};
}

std::string group_name(AxisSet set) {
  std::vector<std::string_view> names;
  for (int a = 0; a < kAxes; ++a) {
    if (set & (1U << a)) names.push_back(name(static_cast<Axis>(a)));
  }
  return names.empty() ? "self" : fmt::format("{}", fmt::join(names, "+"));
}

}  // namespace

std::string_view name(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "tensor";
    case Axis::kContext:
      return "context";
    case Axis::kExpert:
      return "expert";
    case Axis::kData:
      return "data";
    case Axis::kPipeline:
      return "pipeline";
  }
  PITON_ASSERT(false, "axis {}", static_cast<int>(axis));
  return {};
}

int MeshSizes::ranks() const {
  int product = 1;
  for (int s : size) product *= s;
  return product;
}

std::array<int, kAxes> coordinates_of(int rank, const MeshSizes& sizes) {
  std::array<int, kAxes> coordinates{};
  for (int a = 0; a < kAxes; ++a) {
    coordinates[a] = rank % sizes.size[a];
    rank /= sizes.size[a];
  }
  return coordinates;
}

Mesh::Mesh(World& world, MeshSizes sizes) : world_(&world), sizes_(sizes) {
  std::vector<std::string> shape;
  std::vector<std::string_view> flags;
  int model_ranks = 1;  // ranks of one replica: product of all axes except data
  for (int a = 0; a < kAxes; ++a) {
    const auto axis = static_cast<Axis>(a);
    if (sizes[axis] < 1) {
      throw Error(Fault::kUsage, "mesh: {} is {}, wanted at least 1; change {}", name(axis),
                  sizes[axis], flag(axis));
    }
    if (axis != Axis::kData) model_ranks *= sizes[axis];
    if (sizes[axis] > 1) {
      shape.push_back(fmt::format("{} {}", name(axis), sizes[axis]));
      if (axis != Axis::kData) flags.push_back(flag(axis));
    }
  }
  if (sizes.ranks() != world.size()) {
    throw Error(Fault::kUsage, "mesh: {} processes cannot form {}; start {}{}{}", world.size(),
                shape.empty() ? "a mesh of one" : fmt::format("{}", fmt::join(shape, " x ")),
                model_ranks == 1 ? fmt::format("{}", sizes.ranks())
                                 : fmt::format("a multiple of {}", model_ranks),
                flags.empty() ? "" : ", or change ", fmt::join(flags, " or "));
  }
  coordinates_ = coordinates_of(world.rank(), sizes_);
}

int Mesh::rank_at(const std::array<int, kAxes>& coordinates) const {
  int rank = 0;
  for (int a = kAxes - 1; a >= 0; --a) {
    PITON_ASSERT(coordinates[a] >= 0 && coordinates[a] < sizes_.size[a], "{} {} of {}",
                 name(static_cast<Axis>(a)), coordinates[a], sizes_.size[a]);
    rank = rank * sizes_.size[a] + coordinates[a];
  }
  return rank;
}

std::vector<int> Mesh::members(AxisSet set) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < sizes_.ranks(); ++rank) {
    const auto there = coordinates_of(rank, sizes_);
    bool same = true;
    for (int a = 0; a < kAxes; ++a) {
      if (!(set & (1U << a)) && there[a] != coordinates_[a]) same = false;
    }
    if (same) ranks.push_back(rank);
  }
  return ranks;
}

Communicator& Mesh::group(AxisSet set, const std::string& purpose) {
  auto& group = groups_[{set, purpose}];
  if (!group) {
    std::string name = group_name(set);
    if (!purpose.empty()) name += " " + purpose;
    group = world_->make_group(members(set), name);
  }
  return *group;
}

Communicator& Mesh::part_of_group(AxisSet set, GroupPart part, const std::string& purpose) {
  const std::string name = fmt::format("{} {}, {} {} parts", group_name(set), purpose,
                                       part.across ? "across" : "one of", part.parts);
  auto& group = parts_of_groups_[name];
  if (group) return *group;
  const std::vector<int> all = members(set);
  PITON_ASSERT(part.parts > 0 && std::ssize(all) % part.parts == 0, "{} members in {} parts",
               all.size(), part.parts);
  const auto run = std::ssize(all) / part.parts;
  const auto own = std::ranges::find(all, world_->rank()) - all.begin();
  std::vector<int> ranks;
  for (std::ptrdiff_t i = 0; i < std::ssize(all); ++i) {
    if (part.across ? i % run == own % run : i / run == own / run)
      ranks.push_back(all[static_cast<std::size_t>(i)]);
  }
  group = world_->make_group(ranks, name);
  return *group;
}

Communicator& Mesh::stages(const std::vector<int>& stages) {
  PITON_ASSERT(std::is_sorted(stages.begin(), stages.end()), "stages ascend");
  auto& group = stage_groups_[stages];
  if (!group) {
    std::vector<int> ranks;
    for (int stage : stages) {
      auto there = coordinates_;
      there[static_cast<int>(Axis::kPipeline)] = stage;
      ranks.push_back(rank_at(there));
    }
    PITON_ASSERT(std::find(ranks.begin(), ranks.end(), world_->rank()) != ranks.end(),
                 "stage {} asks for a group of stages {} without itself",
                 coordinate(Axis::kPipeline), fmt::join(stages, " "));
    group = world_->make_group(ranks, fmt::format("stages {}", fmt::join(stages, " ")));
  }
  return *group;
}

}  // namespace piton
