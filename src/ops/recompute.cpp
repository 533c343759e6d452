#include "ops/recompute.h"

#include <memory>
#include <utility>

#include "ops/computed_again.h"

namespace piton {
namespace {

// Keeps this rank's part of `x`. Its handle gathers the parts of all members, which ask for it in
// the same order.
Kept kept_in_parts(const Context& context, const Tensor& x, Communicator& group) {
  const std::int64_t size = x.elements() / group.size();
  PITON_ASSERT(size * group.size() == x.elements(), "{} over {} ranks", to_string(x), group.size());
  const Tensor part = context.activation(x.dtype(), {size});
  context.kernels.run(Copy{.dst = part, .src = x.flatten().slice(0, group.rank() * size, size)},
                      context.stream);
  return Kept(computed_again([plain = context.with_tape(nullptr), kept = context.tape->keep(part),
                              shape = x.shape(), &group] {
    const Tensor mine = kept.get();
    Tensor whole = plain.activation(mine.dtype(), shape);
    const Event ready = group.all_gather(whole.flatten(), mine, plain.stream);
    plain.arena.hold(whole, ready.fence());
    plain.arena.hold(mine, ready.fence());
    plain.await(ready);
    return whole;
  }));
}

}  // namespace

std::vector<Value> recomputed(Context& context, const std::vector<Value>& inputs, Segment segment,
                              Communicator* sharers) {
  Tape* tape = context.tape;
  Context plain = context.with_tape(nullptr);
  PITON_ASSERT(tape == nullptr || context.facts == nullptr, "a segment of a replay is recomputed");
  const auto facts = tape != nullptr ? std::make_shared<SegmentFacts>() : nullptr;
  if (facts != nullptr) plain.facts = facts.get();
  std::vector<Value> outputs = segment(plain, inputs);
  if (tape == nullptr) return outputs;

  struct Input {
    std::int64_t id = -1;
    Kept tensor;
  };
  std::vector<Input> kept;
  for (const Value& input : inputs) {
    const bool in_parts = sharers != nullptr && kept.empty();
    kept.push_back({input.id, in_parts ? kept_in_parts(context, input.tensor, *sharers)
                                       : tape->keep(input.tensor)});
  }
  std::vector<std::int64_t> output_ids;
  for (Value& output : outputs) {
    output = tape->output(output.tensor);
    output_ids.push_back(output.id);
  }
  // The node also keeps the parts of the context that the segment reads: `rows`, `training`,
  // `limits_experts`, and the scale of the balance of experts, whose sum forward has counted.
  tape->record([kept, output_ids, segment = std::move(segment), training = context.training,
                rows = context.rows, scale = context.balance.scale,
                limits_experts = context.limits_experts, facts](Backward& backward) {
    Tape replay;
    Context again = backward.context().with_tape(&replay);
    again.training = training;
    again.recompute = {};  // what the replay keeps is needed at once
    again.rows = rows;
    again.balance = {.scale = scale};
    again.limits_experts = limits_experts;
    facts->begin_replay();
    again.facts = facts.get();
    std::vector<Value> leaves;
    for (const Input& input : kept) {
      leaves.push_back(input.id >= 0 ? replay.leaf(input.tensor.get()) : Value{input.tensor.get()});
    }
    std::vector<Value> results = segment(again, leaves);
    for (std::size_t i = 0; i < results.size(); ++i) {
      Tensor gradient = backward.take(output_ids[i]);
      if (gradient.defined()) replay.seed(results[i], std::move(gradient));
      results[i].tensor = {};
    }
    replay.backward(again,
                    backward.runs_jobs_at_once() ? Tape::Mode::kWhole : Tape::Mode::kInputOnly);
    backward.adopt_jobs(replay);
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].wants_gradient()) continue;
      Tensor gradient = replay.take_gradient(leaves[i], again);
      if (gradient.defined()) backward.give(kept[i].id, std::move(gradient));
    }
  });
  return outputs;
}

}  // namespace piton
