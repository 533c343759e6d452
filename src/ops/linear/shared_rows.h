// Collectives that are fused with a product of the same rows, tile by tile, over memory that the
// ranks of a host share (MindSpeed's fused kernels, "communication over computation"):
//
//   gather          all-gather-matmul           a tile of a member is multiplied as soon as it is
//                                               shown, out of that member's memory
//   reduce_scatter  matmul-reduce-scatter       a product is written where its owner reads it, and
//   all_reduce      matmul-all-reduce           the next tile is computed meanwhile
//
// Tiles end at row tiles of the kernels, and sums are those of the collectives, in the order of
// members: so the bits are those of the product and the collective one after the other. A member
// begins with the tiles of the next one and ends with its own, so members do not meet at one.
//
// All members call the same functions in the same order, with the same sizes. The functions block
// the host until their results are there.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "ops/context.h"
#include "ops/row_ranges.h"

namespace piton {

class SharedRows {
 public:
  // Collective over `group`, during setup. Whole tensors of at most `bytes` bytes fit. Throws
  // Error(kUsage) if the members cannot share memory: on several hosts, too many, or of a GPU.
  SharedRows(Communicator& group, Device& device, std::int64_t bytes);

  // Whether a tensor of the rows of all members fits. The same on every member.
  bool fits(std::int64_t bytes) const { return bytes <= bytes_; }

  // Something about `rows` of the whole tensor, whose values are in `tile` or go there.
  using Tile = std::function<void(const RowRange& rows, const Tensor& tile)>;

  // Calls `use` for all rows [n, w], of which this member has `mine` [n/t, w]: own rows first. With
  // `all` [n, w], all rows are also written there, and `tile` is a part of it.
  void gather(Context& context, const Tensor& mine, const Tensor& all, const Tile& use);
  // mine [n/t, w] = this member's rows of the sum over members of [n, w], which `compute` writes.
  void reduce_scatter(Context& context, const Tile& compute, const Tensor& mine);
  // data [n, w] = the sum over members of what `compute` writes.
  void all_reduce(Context& context, const Tile& compute, const Tensor& data);

 private:
  // What a counter of a member counts; each has one for each member that adds to it.
  enum class Sign : std::uint8_t { kReady, kReleased, kSummed };

  int slot(Sign sign, int member) const { return static_cast<int>(sign) * size_ + member; }
  void signal(int member, Sign sign, std::int64_t bytes = 0);
  void wait(int member, Sign sign);  // for one more signal
  void begin(Context& context);
  void release_all();
  // A tensor at the start of this member's buffer, or of another one's.
  Tensor at(int member, DType dtype, const Shape& shape) const;
  bool is_own(int member) const { return member == rank_; }
  void sum_own_tile(const Tensor& whole, const RowRange& tile, const Tensor& out);

  Communicator& group_;
  int rank_;
  int size_;
  std::int64_t bytes_;
  std::unique_ptr<SymmetricMemory> memory_;
  bool shown_ = false;                 // whether other members may still read this buffer
  std::vector<std::uint64_t> waited_;  // signals of each slot that have been waited for
};

}  // namespace piton
