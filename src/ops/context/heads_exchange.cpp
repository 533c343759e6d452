#include "ops/context/heads_exchange.h"

#include <utility>

namespace piton {
namespace {

// The buffers of one all-to-all: a block for each member, in which each tensor has its place.
class Blocks {
 public:
  // `rows`: shapes [b, s/c, H, d] of the tensors on one side.
  Blocks(const Context& context, const std::vector<Shape>& rows, DType dtype,
         const ContextGroup& group)
      : context_(context), group_(group) {
    const int c = group.size();
    for (const Shape& shape : rows) {
      PITON_ASSERT(shape[2] % c == 0 && shape[1] % 2 == 0, "{} over {} ranks", to_string(shape), c);
      Shape part = shape;
      part[2] /= c;
      begins_.push_back(block_);
      parts_.push_back(part);
      block_ += part.elements();
    }
    for (Tensor* buffer : {&sent_, &received_}) *buffer = context.workspace(dtype, {c * block_});
  }

  int members() const { return group_.size(); }
  std::size_t tensors() const { return parts_.size(); }
  // The place of tensor `i` in the block for, or from, a member: [b, s/c, H/c, d].
  Tensor sent(int member, std::size_t i) const { return place(sent_, member, i); }
  Tensor received(int member, std::size_t i) const { return place(received_, member, i); }

  void exchange() {
    const Event ready = group_.group->all_to_all(received_, sent_, context_.stream);
    context_.arena.hold(sent_, ready.fence());
    context_.arena.hold(received_, ready.fence());
    context_.await(ready);
  }

  void copy(const Tensor& dst, const Tensor& src) const {
    context_.kernels.run(Copy{.dst = dst, .src = src}, context_.stream);
  }

 private:
  Tensor place(const Tensor& buffer, int member, std::size_t i) const {
    return buffer.slice(0, member * block_ + begins_[i], parts_[i].elements()).reshape(parts_[i]);
  }

  const Context& context_;
  const ContextGroup& group_;
  std::vector<std::int64_t> begins_;
  std::vector<Shape> parts_;
  std::int64_t block_ = 0;  // elements
  Tensor sent_;
  Tensor received_;
};

// use(rows of a member in the whole sequence, the same in its block) for both of its stretches.
template <typename Use>
void for_stretches(const Tensor& whole, const Tensor& block, int member, int members, Use use) {
  const SequenceStretches stretches{member, members};
  const std::int64_t rows = stretches.rows(whole.dim(1));
  use(whole.slice(1, stretches.first() * rows, rows), block.slice(1, 0, rows));
  use(whole.slice(1, stretches.second() * rows, rows), block.slice(1, rows, rows));
}

// The heads of a member: [b, s/c, H, d] -> [b, s/c, H/c, d].
Tensor heads_of(const Tensor& rows, int member, int members) {
  const std::int64_t heads = rows.dim(2) / members;
  return rows.slice(2, member * heads, heads);
}

std::vector<Tensor> to_sequences(const Context& context, const std::vector<Tensor>& rows,
                                 const ContextGroup& group) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  const DType dtype = rows.front().dtype();
  Blocks blocks(context, shapes, dtype, group);
  const int c = blocks.members();
  for (int member = 0; member < c; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      blocks.copy(blocks.sent(member, i), heads_of(rows[i], member, c));
  }
  blocks.exchange();
  std::vector<Tensor> wholes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Shape& shape = shapes[i];
    wholes.push_back(context.activation(dtype, {shape[0], shape[1] * c, shape[2] / c, shape[3]}));
    for (int member = 0; member < c; ++member) {
      for_stretches(wholes[i], blocks.received(member, i), member, c,
                    [&](const Tensor& whole, const Tensor& part) { blocks.copy(whole, part); });
    }
  }
  return wholes;
}

// `rows`: where the results are written.
void to_rows(const Context& context, const std::vector<Tensor>& wholes,
             const std::vector<Tensor>& rows, const ContextGroup& group) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  Blocks blocks(context, shapes, rows.front().dtype(), group);
  const int c = blocks.members();
  for (int member = 0; member < c; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for_stretches(wholes[i], blocks.sent(member, i), member, c,
                    [&](const Tensor& whole, const Tensor& part) { blocks.copy(part, whole); });
    }
  }
  blocks.exchange();
  for (int member = 0; member < c; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      blocks.copy(heads_of(rows[i], member, c), blocks.received(member, i));
  }
}

}  // namespace

std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   const ContextGroup& group) {
  std::vector<Tensor> tensors;
  for (const Value& one : rows) tensors.push_back(one.tensor);
  std::vector<Value> results;
  std::vector<std::int64_t> inputs, outputs;
  std::vector<Shape> shapes;
  for (const Tensor& whole : to_sequences(context, tensors, group))
    results.push_back(context.tape == nullptr ? Value{whole} : context.tape->output(whole));
  if (context.tape == nullptr) return results;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    inputs.push_back(rows[i].id);
    outputs.push_back(results[i].id);
    shapes.push_back(rows[i].tensor.shape());
  }
  context.tape->record([inputs, outputs, shapes, group](Backward& backward) {
    std::vector<Tensor> wholes, places;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor gradient = backward.take(outputs[i]);
      if (!gradient.defined()) return;
      const Shape& shape = shapes[i];
      const int c = group.size();
      wholes.push_back(gradient.reshape({shape[0], shape[1] * c, shape[2] / c, shape[3]}));
      places.push_back(backward.place(inputs[i], gradient.dtype(), shape));
    }
    to_rows(backward.context(), wholes, places, group);
    for (std::size_t i = 0; i < inputs.size(); ++i) backward.give(inputs[i], places[i]);
  });
  return results;
}

Value own_rows(Context& context, const Value& sequences, const ContextGroup& group) {
  const Shape& whole = sequences.tensor.shape();
  const int c = group.size();
  const Shape shape{whole[0], whole[1] / c, whole[2] * c, whole[3]};
  const Tensor rows = context.activation(sequences.tensor.dtype(), shape);
  to_rows(context, {sequences.tensor}, {rows}, group);
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  context.tape->record([x_id = sequences.id, id = result.id, shape, group](Backward& backward) {
    const Tensor gradient = backward.take(id);
    if (!gradient.defined()) return;
    const Context& context = backward.context();
    backward.give(x_id, to_sequences(context, {gradient.reshape(shape)}, group).front());
  });
  return result;
}

}  // namespace piton
