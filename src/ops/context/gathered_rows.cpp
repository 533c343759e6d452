#include "ops/context/gathered_rows.h"

#include <memory>
#include <utility>

#include "comm/communicator.h"
#include "ops/computed_again.h"
#include "ops/context/member_blocks.h"

namespace piton {
namespace {

std::vector<Tensor> gathered(const Context& context, const std::vector<Tensor>& rows,
                             Communicator& ranks) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  const DType dtype = rows.front().dtype();
  const int c = ranks.size();
  const MemberBlocks mine(context, dtype, shapes, 1), all(context, dtype, shapes, c);
  for (std::size_t i = 0; i < rows.size(); ++i) copy(context, mine.at(0, i), rows[i]);
  await_collective(context, ranks.all_gather(all.buffer(), mine.buffer(), context.stream),
                   {mine.buffer(), all.buffer()});
  std::vector<Tensor> wholes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Shape shape = shapes[i];
    shape[1] *= c;
    wholes.push_back(context.activation(dtype, shape));
    for (int member = 0; member < c; ++member) {
      for_stretches(wholes[i], all.at(member, i), member, c,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, whole, part); });
    }
  }
  return wholes;
}

// rows[i] = this rank's rows of the sum over ranks of wholes[i].
void scatter_sums(const Context& context, const std::vector<Tensor>& wholes,
                  const std::vector<Tensor>& rows, Communicator& ranks) {
  std::vector<Shape> shapes;
  for (const Tensor& one : rows) shapes.push_back(one.shape());
  const DType sums = sum_dtype(rows.front().dtype());
  const int c = ranks.size();
  const MemberBlocks mine(context, sums, shapes, 1), all(context, sums, shapes, c);
  for (int member = 0; member < c; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for_stretches(wholes[i], all.at(member, i), member, c,
                    [&](const Tensor& whole, const Tensor& part) { copy(context, part, whole); });
    }
  }
  await_collective(context, ranks.reduce_scatter(mine.buffer(), all.buffer(), context.stream),
                   {mine.buffer(), all.buffer()});
  for (std::size_t i = 0; i < rows.size(); ++i) copy(context, rows[i], mine.at(0, i));
}

// Gathers when backward first asks for one of the results. All ranks ask in the same order.
class GatheredAgain {
 public:
  GatheredAgain(const Context& context, std::vector<Kept> rows, Communicator& ranks)
      : context_(context.with_tape(nullptr)), rows_(std::move(rows)), ranks_(ranks) {}

  const Tensor& whole(std::size_t i) {
    if (wholes_.empty()) {
      std::vector<Tensor> rows;
      for (const Kept& one : rows_) rows.push_back(one.get());
      wholes_ = gathered(context_, rows, ranks_);
      rows_.clear();
    }
    return wholes_[i];
  }

 private:
  Context context_;
  std::vector<Kept> rows_;
  Communicator& ranks_;
  std::vector<Tensor> wholes_;
};

}  // namespace

std::vector<Value> gathered_rows(Context& context, const std::vector<Value>& rows,
                                 Communicator& ranks) {
  std::vector<Tensor> tensors;
  for (const Value& one : rows) tensors.push_back(one.tensor);
  std::vector<Value> results;
  for (const Tensor& whole : gathered(context, tensors, ranks))
    results.push_back(context.tape == nullptr ? Value{whole} : context.tape->output(whole));
  if (context.tape == nullptr) return results;
  Tape& tape = *context.tape;
  std::vector<Kept> kept;
  std::vector<std::int64_t> inputs, outputs;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    kept.push_back(tape.keep(tensors[i]));
    inputs.push_back(rows[i].id);
    outputs.push_back(results[i].id);
    shapes.push_back(tensors[i].shape());
  }
  const auto again = std::make_shared<GatheredAgain>(context, std::move(kept), ranks);
  for (std::size_t i = 0; i < rows.size(); ++i)
    tape.provide(results[i].tensor, computed_again([again, i] { return again->whole(i); }));
  tape.record([inputs, outputs, shapes, &ranks](Backward& backward) {
    std::vector<Tensor> wholes, places;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor gradient = backward.take(outputs[i]);
      if (!gradient.defined()) return;
      places.push_back(backward.place(inputs[i], gradient.dtype(), shapes[i]));
      wholes.push_back(std::move(gradient));
    }
    scatter_sums(backward.context(), wholes, places, ranks);
    for (std::size_t i = 0; i < inputs.size(); ++i) backward.give(inputs[i], places[i]);
  });
  return results;
}

}  // namespace piton
