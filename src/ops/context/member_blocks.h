// A buffer of a collective: a block for each member of a group, in which each of several tensors
// has its place.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "comm/sequence_stretches.h"
#include "ops/context.h"
#include "ops/tape.h"

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

// Waits for the blocks of `members`, [b, s/c, ...] each -> their rows in the order of the sequence,
// [b, s, ...], of each tensor.
inline std::vector<Tensor> joined_members(const Context& context, const TravelingBlocks& there,
                                          int members) {
  context.await(there.ready);
  std::vector<Tensor> wholes;
  for (std::size_t i = 0; i < there.blocks.tensors(); ++i) {
    Shape shape = there.blocks.at(0, i).shape();
    shape[1] *= members;
    wholes.push_back(context.activation(there.blocks.buffer().dtype(), shape));
    for (int member = 0; member < members; ++member) {
      for_stretches(wholes[i], there.blocks.at(member, i), member, members,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, whole, part); });
    }
  }
  return wholes;
}

// The reverse: writes the rows of each member to its block.
inline void divide_among_members(const Context& context, const std::vector<Tensor>& wholes,
                                 const MemberBlocks& blocks, int members) {
  for (int member = 0; member < members; ++member) {
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      for_stretches(wholes[i], blocks.at(member, i), member, members,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, part, whole); });
    }
  }
}

// Gradients of tensors of one dtype that come back in parts, one after another: memory for them is
// asked for by the first part, and they are complete when the last one is written.
class GradientsInParts {
 public:
  explicit GradientsInParts(const std::vector<Value>& rows) : dtype_(rows.front().tensor.dtype()) {
    for (const Value& one : rows) {
      ids_.push_back(one.id);
      shapes_.push_back(one.tensor.shape());
    }
  }
  const std::vector<Tensor>& places(Backward& backward) {
    for (std::size_t i = places_.size(); i < ids_.size(); ++i)
      places_.push_back(backward.place(ids_[i], dtype_, shapes_[i]));
    return places_;
  }
  void give(Backward& backward) {  // after the last part
    for (std::size_t i = 0; i < ids_.size(); ++i) backward.give(ids_[i], std::move(places_[i]));
  }

 private:
  DType dtype_;
  std::vector<std::int64_t> ids_;
  std::vector<Shape> shapes_;
  std::vector<Tensor> places_;
};

}  // namespace piton
