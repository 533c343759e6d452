// A buffer of a collective: a block for each member of a group, in which each of several tensors
// has its place.
#pragma once

#include <vector>

#include "comm/sequence_stretches.h"
#include "ops/context.h"

namespace piton {

class MemberBlocks {
 public:
  // `parts`: the shapes of the tensors in a block.
  MemberBlocks(const Context& context, DType dtype, const std::vector<Shape>& parts, int blocks)
      : parts_(parts) {
    for (const Shape& part : parts_) {
      begins_.push_back(block_);
      block_ += part.elements();
    }
    buffer_ = context.workspace(dtype, {blocks * block_});
  }

  const Tensor& buffer() const { return buffer_; }
  std::size_t tensors() const { return parts_.size(); }  // of a block
  // Tensor `i` of a block.
  Tensor at(int block, std::size_t i) const {
    return buffer_.slice(0, block * block_ + begins_[i], parts_[i].elements()).reshape(parts_[i]);
  }

 private:
  std::vector<Shape> parts_;
  std::vector<std::int64_t> begins_;
  std::int64_t block_ = 0;  // elements
  Tensor buffer_;
};

// Blocks that a collective writes.
struct TravelingBlocks {
  MemberBlocks blocks;
  Event ready;
};

inline void copy(const Context& context, const Tensor& dst, const Tensor& src) {
  context.kernels.run(Copy{.dst = dst, .src = src}, context.stream);
}

// use(rows of a member in the whole, the same in its part) for both of its stretches. `whole`
// [b, s, ...]: of all members, in order; `part` [b, s/c, ...].
template <typename Use>
void for_stretches(const Tensor& whole, const Tensor& part, int member, int members, Use use) {
  const SequenceStretches stretches{member, members};
  const std::int64_t rows = stretches.rows(whole.dim(1));
  use(whole.slice(1, stretches.first() * rows, rows), part.slice(1, 0, rows));
  use(whole.slice(1, stretches.second() * rows, rows), part.slice(1, rows, rows));
}

}  // namespace piton
