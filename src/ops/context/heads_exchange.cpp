#include "ops/context/heads_exchange.h"

#include <utility>

#include "comm/communicator.h"

namespace piton {
namespace {

// The heads of a member that are in a part: [b, r, H, d] -> [b, r, h, d].
Tensor heads_of(const Tensor& rows, int member, int members, const HeadPart& part) {
  const std::int64_t heads = rows.dim(2) / members;
  return rows.slice(2, member * heads + part.first(heads), part.count(heads));
}

// `parts`: the shapes [b, r, h, d] of the tensors in a block, the same for each member. `fill` gets
// the blocks that are sent.
template <typename Fill>
TravelingBlocks exchanged(const Context& context, DType dtype, const std::vector<Shape>& parts,
                          Communicator& ranks, const Fill& fill) {
  const MemberBlocks sent(context, dtype, parts, ranks.size());
  TravelingBlocks there{.blocks = MemberBlocks(context, dtype, parts, ranks.size()), .ready = {}};
  fill(sent);
  const Tensor& received = there.blocks.buffer();
  there.ready = ranks.all_to_all(received, sent.buffer(), context.stream);
  for (const Tensor& buffer : {sent.buffer(), received})
    context.arena.hold(buffer, there.ready.fence());
  return there;
}

TravelingBlocks start_to_sequences(const Context& context, const std::vector<Tensor>& rows,
                                   const HeadPart& part, Communicator& ranks) {
  const int u = ranks.size();
  std::vector<Shape> parts;
  for (const Tensor& one : rows) {
    const std::int64_t heads = one.dim(2) / u;
    PITON_ASSERT(one.dim(2) % u == 0 && heads % part.of == 0 && one.dim(1) % 2 == 0,
                 "{} over {} ranks, in {} parts", to_string(one), u, part.of);
    parts.push_back({one.dim(0), one.dim(1), part.count(heads), one.dim(3)});
  }
  return exchanged(context, rows.front().dtype(), parts, ranks, [&](const MemberBlocks& sent) {
    for (int member = 0; member < u; ++member) {
      for (std::size_t i = 0; i < rows.size(); ++i)
        copy(context, sent.at(member, i), heads_of(rows[i], member, u, part));
    }
  });
}

TravelingBlocks start_to_rows(const Context& context, const std::vector<Tensor>& wholes,
                              Communicator& ranks) {
  const int u = ranks.size();
  std::vector<Shape> parts;
  for (const Tensor& one : wholes)
    parts.push_back({one.dim(0), one.dim(1) / u, one.dim(2), one.dim(3)});
  return exchanged(context, wholes.front().dtype(), parts, ranks, [&](const MemberBlocks& sent) {
    divide_among_members(context, wholes, sent, u);
  });
}

// Writes a part to `rows`.
void write_rows(const Context& context, const TravelingBlocks& there, const HeadPart& part,
                const std::vector<Tensor>& rows, Communicator& ranks) {
  context.await(there.ready);
  const int u = ranks.size();
  for (int member = 0; member < u; ++member) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      copy(context, heads_of(rows[i], member, u, part), there.blocks.at(member, i));
  }
}

using Back = std::shared_ptr<std::optional<TravelingBlocks>>;

}  // namespace

ToSequences::ToSequences(std::vector<Value> rows, Communicator& ranks)
    : rows_(std::move(rows)), ranks_(ranks) {}

void ToSequences::start(Context& context, const HeadPart& part) {
  std::vector<Tensor> tensors;
  for (const Value& one : rows_) tensors.push_back(one.tensor);
  const auto back = std::make_shared<std::optional<TravelingBlocks>>();
  parts_.push_back({part, start_to_sequences(context, tensors, part, ranks_), back});
  if (context.tape == nullptr) return;
  const bool first = gradients_ == nullptr;
  if (first) gradients_ = std::make_shared<GradientsInParts>(rows_);
  context.tape->record(
      [gradients = gradients_, part, back, first, &ranks = ranks_](Backward& backward) {
        const auto there = std::exchange(*back, std::nullopt);
        if (!there) return;
        write_rows(backward.context(), *there, part, gradients->places(backward), ranks);
        if (first) gradients->give(backward);
      });
}

std::vector<Value> ToSequences::next(Context& context) {
  PITON_ASSERT(!parts_.empty(), "no part is under way");
  const TravelingPart part = std::move(parts_.front());
  parts_.pop_front();
  std::vector<Value> results;
  std::vector<std::pair<std::int64_t, Shape>> outputs;
  for (const Tensor& whole : joined_members(context, part.there, ranks_.size())) {
    results.push_back(context.tape == nullptr ? Value{whole} : context.tape->output(whole));
    outputs.emplace_back(results.back().id, whole.shape());
  }
  if (context.tape == nullptr) return results;
  context.tape->record([outputs, back = part.back, &ranks = ranks_](Backward& backward) {
    std::vector<Tensor> gradients;
    for (const auto& [id, shape] : outputs) {
      const Tensor gradient = backward.take(id);
      if (!gradient.defined()) return;
      gradients.push_back(gradient.reshape(shape));
    }
    *back = start_to_rows(backward.context(), gradients, ranks);
  });
  return results;
}

void ToRows::start(Context& context, const Value& sequences, const HeadPart& part) {
  const Shape& whole = sequences.tensor.shape();
  const int u = ranks_.size();
  if (parts_.empty()) shape_ = {whole[0], whole[1] / u, 0, whole[3]};
  shape_[2] += whole[2] * u;
  const auto back = std::make_shared<std::optional<TravelingBlocks>>();
  parts_.push_back({part, start_to_rows(context, {sequences.tensor}, ranks_), back});
  if (context.tape == nullptr) return;
  context.tape->record([x_id = sequences.id, back, &ranks = ranks_](Backward& backward) {
    const auto there = std::exchange(*back, std::nullopt);
    if (there)
      backward.give(x_id, joined_members(backward.context(), *there, ranks.size()).front());
  });
}

Value ToRows::all(Context& context) {
  const Tensor rows = context.activation(parts_.front().there.blocks.buffer().dtype(), shape_);
  std::vector<std::pair<HeadPart, Back>> backs;
  for (TravelingPart& part : parts_) {
    write_rows(context, part.there, part.heads, {rows}, ranks_);
    backs.emplace_back(part.heads, part.back);
  }
  parts_.clear();
  if (context.tape == nullptr) return {rows};
  Value result = context.tape->output(rows);
  context.tape->record(
      [backs, id = result.id, shape = shape_, &ranks = ranks_](Backward& backward) {
        const Tensor gradient = backward.take(id);
        if (!gradient.defined()) return;
        // The last part is the first one whose attention follows.
        for (auto part = backs.rbegin(); part != backs.rend(); ++part) {
          const auto& [heads, back] = *part;
          *back = start_to_sequences(backward.context(), {gradient.reshape(shape)}, heads, ranks);
        }
      });
  return result;
}

std::vector<Value> whole_sequences(Context& context, const std::vector<Value>& rows,
                                   Communicator& ranks) {
  ToSequences there(rows, ranks);
  there.start(context, {});
  return there.next(context);
}

Value own_rows(Context& context, const Value& sequences, Communicator& ranks) {
  ToRows back(ranks);
  back.start(context, sequences, {});
  return back.all(context);
}

}  // namespace piton
