// The place of one process in the grid of all processes.
//
// An AXIS is a direction of this grid; a DIM is a dimension of a tensor. The two words are never
// exchanged. Tensor is the fastest axis, so that its ranks, which communicate most, share a host;
// then context, expert, data, pipeline:
//
//   rank = tensor + T * (context + C * (expert + E * (data + D * pipeline)))
//
// With T = 2, D = 2, P = 2:    rank  0 1 2 3 4 5 6 7
//                            tensor  0 1 0 1 0 1 0 1
//                              data  0 0 1 1 0 0 1 1
//                          pipeline  0 0 0 0 1 1 1 1
//
// A group is named by a set of axes. Its members are the ranks whose coordinates differ from those
// of this rank only along these axes. Every axis may have size 1.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace piton {

enum class Axis : std::uint8_t { kTensor, kContext, kExpert, kData, kPipeline };
inline constexpr int kAxes = 5;

std::string_view name(Axis axis);

using AxisSet = std::uint8_t;  // bits 1 << axis
constexpr AxisSet axes(Axis axis) { return static_cast<AxisSet>(1U << static_cast<int>(axis)); }
template <typename... More>
constexpr AxisSet axes(Axis first, More... more) {
  return static_cast<AxisSet>(axes(first) | axes(more...));
}
inline constexpr AxisSet kAllAxes = (1U << kAxes) - 1;

struct MeshSizes {
  std::array<int, kAxes> size{1, 1, 1, 1, 1};
  int& operator[](Axis axis) { return size[static_cast<int>(axis)]; }
  int operator[](Axis axis) const { return size[static_cast<int>(axis)]; }
  int ranks() const;
  // How many ranks have different samples: those of the data axis and of the expert axis.
  int sample_ranks() const { return (*this)[Axis::kExpert] * (*this)[Axis::kData]; }
};

// The coordinates of rank `rank` in a mesh of these sizes, by axis.
std::array<int, kAxes> coordinates_of(int rank, const MeshSizes& sizes);

// The members of a group are cut into `parts` runs of equal length: a run, or the members at one
// place of all runs.
struct GroupPart {
  int parts = 1;
  bool across = false;
};

class Mesh {
 public:
  // Throws Error(kUsage) if the product of `sizes` is not world.size(); the message says what fits.
  Mesh(World& world, MeshSizes sizes);

  int size(Axis axis) const { return sizes_[axis]; }
  int coordinate(Axis axis) const { return coordinates_[static_cast<int>(axis)]; }
  int rank_at(const std::array<int, kAxes>& coordinates) const;
  const MeshSizes& sizes() const { return sizes_; }
  // This one of the sample_ranks().
  int sample_rank() const {
    return coordinate(Axis::kExpert) + size(Axis::kExpert) * coordinate(Axis::kData);
  }
  World& world() const { return *world_; }

  // This rank's group along the axes `set`. Members are in order of world rank. The group is made
  // on first use. This is collective and waits for all members: every rank requests its groups in
  // the same order, and before messages are pending.
  Communicator& group(AxisSet set) { return group(set, ""); }
  Communicator& group(Axis axis) { return group(axes(axis)); }
  // A separate group of the same ranks: its collectives do not wait for those of other purposes.
  Communicator& group(AxisSet set, const std::string& purpose);

  // Of the group along `set`, the part with this rank; like group(), collective and made on first
  // use. `parts` divides the size of the group.
  Communicator& part_of_group(AxisSet set, GroupPart part, const std::string& purpose);

  // The ranks of this rank's pipeline group at `stages`, in ascending order and including this
  // stage. For tied embeddings, which two stages hold. Collective over these ranks.
  Communicator& stages(const std::vector<int>& stages);

  // World ranks of the group along `set`, ascending.
  std::vector<int> members(AxisSet set) const;

 private:
  World* world_;
  MeshSizes sizes_;
  std::array<int, kAxes> coordinates_{};
  std::map<std::pair<AxisSet, std::string>, std::unique_ptr<Communicator>> groups_;
  std::map<std::string, std::unique_ptr<Communicator>> parts_of_groups_;  // by name
  std::map<std::vector<int>, std::unique_ptr<Communicator>> stage_groups_;
};

}  // namespace piton
