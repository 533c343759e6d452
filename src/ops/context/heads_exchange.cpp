#include "ops/context/heads_exchange.h"

#include <utility>

#include "comm/communicator.h"
#include "ops/context/member_blocks.h"

namespace piton {
namespace {

// The buffers of one all-to-all.
class ExchangedBlocks {
 public:
  // `rows`: shapes [b, r, H, d] of the tensors on one side.
  ExchangedBlocks(const Context& context, const std::vector<Shape>& rows, DType dtype,
                  Communicator& ranks)
      : context_(context),
        ranks_(ranks),
        sent_(context, dtype, parts_of(rows, ranks.size()), ranks.size()),
        received_(context, dtype, parts_of(rows, ranks.size()), ranks.size()) {}

  // The place of tensor `i` in the block for, or from, a member: [b, r, H/u, d].
  Tensor sent(int member, std::size_t i) const { return sent_.at(member, i); }
  Tensor received(int member, std::size_t i) const { return received_.at(member, i); }

  void exchange() {
    const Tensor &in = received_.buffer(), &out = sent_.buffer();
    await_collective(context_, ranks_.all_to_all(in, out, context_.stream), {out, in});
  }

 private:
  static std::vector<Shape> parts_of(std::vector<Shape> rows, int ranks) {
    for (Shape& shape : rows) {
      PITON_ASSERT(shape[2] % ranks == 0 && shape[1] % 2 == 0, "{} over {} ranks", to_string(shape),
                   ranks);
      shape[2] /= ranks;
    }
    return rows;
  }

  const Context& context_;
  Communicator& ranks_;
  MemberBlocks sent_;
  MemberBlocks received_;
};

// The heads of a member: [b, r, H, d] -> [b, r, H/u, d].
Tensor heads_of(const Tensor& rows, int member, int members) {
  const std::int64_t heads = rows.dim(2) / members;
  return rows.slice(2, member * heads, heads);
}

std::vector<Tensor> to_sequences(const Context& context, const std::vector<Tensor>& rows,
                                 Communicator& ranks) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  const DType dtype = rows.front().dtype();
  ExchangedBlocks blocks(context, shapes, dtype, ranks);
  const int u = ranks.size();
  for (int member = 0; member < u; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      copy(context, blocks.sent(member, i), heads_of(rows[i], member, u));
  }
  blocks.exchange();
  std::vector<Tensor> wholes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Shape& shape = shapes[i];
    wholes.push_back(context.activation(dtype, {shape[0], shape[1] * u, shape[2] / u, shape[3]}));
    for (int member = 0; member < u; ++member) {
      for_stretches(wholes[i], blocks.received(member, i), member, u,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, whole, part); });
    }
  }
  return wholes;
}

// `rows`: where the results are written.
void to_rows(const Context& context, const std::vector<Tensor>& wholes,
             const std::vector<Tensor>& rows, Communicator& ranks) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  ExchangedBlocks blocks(context, shapes, rows.front().dtype(), ranks);
  const int u = ranks.size();
  for (int member = 0; member < u; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for_stretches(wholes[i], blocks.sent(member, i), member, u,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, part, whole); });
    }
  }
  blocks.exchange();
  for (int member = 0; member < u; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      copy(context, heads_of(rows[i], member, u), blocks.received(member, i));
  }
}

}  // namespace

std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   Communicator& ranks) {
  std::vector<Tensor> tensors;
  for (const Value& one : rows) tensors.push_back(one.tensor);
  std::vector<Value> results;
  std::vector<std::int64_t> inputs, outputs;
  std::vector<Shape> shapes;
  for (const Tensor& whole : to_sequences(context, tensors, ranks))
    results.push_back(context.tape == nullptr ? Value{whole} : context.tape->output(whole));
  if (context.tape == nullptr) return results;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    inputs.push_back(rows[i].id);
    outputs.push_back(results[i].id);
    shapes.push_back(rows[i].tensor.shape());
  }
  context.tape->record([inputs, outputs, shapes, &ranks](Backward& backward) {
    std::vector<Tensor> wholes, places;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor gradient = backward.take(outputs[i]);
      if (!gradient.defined()) return;
      const Shape& shape = shapes[i];
      const int u = ranks.size();
      wholes.push_back(gradient.reshape({shape[0], shape[1] * u, shape[2] / u, shape[3]}));
      places.push_back(backward.place(inputs[i], gradient.dtype(), shape));
    }
    to_rows(backward.context(), wholes, places, ranks);
    for (std::size_t i = 0; i < inputs.size(); ++i) backward.give(inputs[i], places[i]);
  });
  return results;
}

Value own_rows(Context& context, const Value& sequences, Communicator& ranks) {
  const Shape& whole = sequences.tensor.shape();
  const int u = ranks.size();
  const Shape shape{whole[0], whole[1] / u, whole[2] * u, whole[3]};
  const Tensor rows = context.activation(sequences.tensor.dtype(), shape);
  to_rows(context, {sequences.tensor}, {rows}, ranks);
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  context.tape->record([x_id = sequences.id, id = result.id, shape, &ranks](Backward& backward) {
    const Tensor gradient = backward.take(id);
    if (!gradient.defined()) return;
    const Context& context = backward.context();
    backward.give(x_id, to_sequences(context, {gradient.reshape(shape)}, ranks).front());
  });
  return result;
}

}  // namespace piton
