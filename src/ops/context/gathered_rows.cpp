#include "ops/context/gathered_rows.h"

#include <utility>

#include "comm/communicator.h"
#include "ops/computed_again.h"

namespace piton {
namespace {

std::vector<Tensor> heads_of(const std::vector<Tensor>& rows, const RowRange& heads) {
  std::vector<Tensor> some;
  for (const Tensor& one : rows) some.push_back(one.slice(2, heads.begin, heads.size));
  return some;
}

std::vector<Shape> shapes_of(const std::vector<Tensor>& tensors) {
  std::vector<Shape> shapes;
  for (const Tensor& one : tensors) shapes.push_back(one.shape());
  return shapes;
}

// Makes the memory of both not be used before `ready`.
void hold(const Context& context, const MemberBlocks& a, const MemberBlocks& b,
          const Event& ready) {
  for (const MemberBlocks* blocks : {&a, &b}) context.arena.hold(blocks->buffer(), ready.fence());
}

TravelingBlocks start_to_gather(const Context& context, const std::vector<Tensor>& rows,
                                Communicator& ranks) {
  const DType dtype = rows.front().dtype();
  const std::vector<Shape> shapes = shapes_of(rows);
  const MemberBlocks mine(context, dtype, shapes, 1);
  TravelingBlocks all{.blocks = MemberBlocks(context, dtype, shapes, ranks.size()), .ready = {}};
  for (std::size_t i = 0; i < rows.size(); ++i) copy(context, mine.at(0, i), rows[i]);
  all.ready = ranks.all_gather(all.blocks.buffer(), mine.buffer(), context.stream);
  hold(context, mine, all.blocks, all.ready);
  return all;
}

// This rank's rows of the sum over ranks of `wholes` [b, s, n, d].
TravelingBlocks start_to_scatter(const Context& context, const std::vector<Tensor>& wholes,
                                 Communicator& ranks) {
  const DType sums = sum_dtype(wholes.front().dtype());
  const int c = ranks.size();
  std::vector<Shape> shapes = shapes_of(wholes);
  for (Shape& shape : shapes) shape[1] /= c;
  TravelingBlocks mine{.blocks = MemberBlocks(context, sums, shapes, 1), .ready = {}};
  const MemberBlocks all(context, sums, shapes, c);
  divide_among_members(context, wholes, all, c);
  mine.ready = ranks.reduce_scatter(mine.blocks.buffer(), all.buffer(), context.stream);
  hold(context, mine.blocks, all, mine.ready);
  return mine;
}

}  // namespace

// Gathers slices when backward first asks for one of their results, and the slice before, for which
// it asks next. All ranks ask in the same order.
class GatheredRows::Again {
 public:
  Again(const Context& context, std::vector<Kept> rows, Communicator& ranks)
      : context_(context.with_tape(nullptr)), rows_(std::move(rows)), ranks_(ranks) {}

  void add(const RowRange& heads) { slices_.push_back({.heads = heads}); }

  // Once: tensor `i` of a slice.
  Tensor take(std::int64_t number, std::size_t i) {
    Slice& slice = slices_[static_cast<std::size_t>(number)];
    if (slice.wholes.empty()) {
      start(slice);
      if (number > 0) start(slices_[static_cast<std::size_t>(number - 1)]);
      slice.wholes = joined_members(context_, *slice.there, ranks_.size());
      slice.there.reset();
    }
    return std::move(slice.wholes[i]);
  }

 private:
  struct Slice {
    RowRange heads;
    bool started = false;
    std::optional<TravelingBlocks> there = {};
    std::vector<Tensor> wholes = {};
  };

  void start(Slice& slice) {
    if (std::exchange(slice.started, true)) return;
    std::vector<Tensor> rows;
    for (const Kept& one : rows_) rows.push_back(one.get());
    slice.there = start_to_gather(context_, heads_of(rows, slice.heads), ranks_);
    if (++started_ == slices_.size()) rows_.clear();
  }

  Context context_;
  std::vector<Kept> rows_;
  Communicator& ranks_;
  std::vector<Slice> slices_;
  std::size_t started_ = 0;
};

GatheredRows::GatheredRows(std::vector<Value> rows, Communicator& ranks)
    : rows_(std::move(rows)), ranks_(ranks) {}

void GatheredRows::start(Context& context, const RowRange& heads) {
  std::vector<Tensor> tensors;
  for (const Value& one : rows_) tensors.push_back(one.tensor);
  const auto back = std::make_shared<std::optional<TravelingBlocks>>();
  slices_.push_back({started_++, start_to_gather(context, heads_of(tensors, heads), ranks_), back});
  if (context.tape == nullptr) return;
  const bool first = gradients_ == nullptr;
  if (first) {
    gradients_ = std::make_shared<GradientsInParts>(rows_);
    std::vector<Kept> kept;
    for (const Value& one : rows_) kept.push_back(context.tape->keep(one.tensor));
    again_ = std::make_shared<Again>(context, std::move(kept), ranks_);
  }
  again_->add(heads);
  context.tape->record([gradients = gradients_, heads, back, first](Backward& backward) {
    const auto sums = std::exchange(*back, std::nullopt);
    if (!sums) return;
    const Context& context = backward.context();
    const std::vector<Tensor> of_heads = heads_of(gradients->places(backward), heads);
    context.await(sums->ready);
    for (std::size_t i = 0; i < of_heads.size(); ++i)
      copy(context, of_heads[i], sums->blocks.at(0, i));
    if (first) gradients->give(backward);
  });
}

std::vector<Value> GatheredRows::next(Context& context) {
  PITON_ASSERT(!slices_.empty(), "no slice is under way");
  const Slice slice = std::move(slices_.front());
  slices_.pop_front();
  std::vector<Value> results;
  for (const Tensor& whole : joined_members(context, slice.there, ranks_.size()))
    results.push_back(context.tape == nullptr ? Value{whole} : context.tape->output(whole));
  if (context.tape == nullptr) return results;
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < results.size(); ++i) {
    ids.push_back(results[i].id);
    context.tape->provide(results[i].tensor,
                          computed_again([again = again_, number = slice.number, i] {
                            return again->take(number, i);
                          }));
  }
  context.tape->record([ids, back = slice.back, &ranks = ranks_](Backward& backward) {
    std::vector<Tensor> wholes;
    for (const std::int64_t id : ids) {
      wholes.push_back(backward.take(id));
      if (!wholes.back().defined()) return;
    }
    *back = start_to_scatter(backward.context(), wholes, ranks);
  });
  return results;
}

}  // namespace piton
