// How one micro-batch goes back.
//
// A Value is a tensor and its place on a tape. An op computes its output; if it was handed a tape
// it records a node: a function that takes the output's gradient and gives the inputs' gradients,
// and puts each weight gradient on the tape's queue of weight jobs. Nothing is kept unless a tape
// is handed in, and a node is dropped as soon as it has run: activations go as backward proceeds.
// What a node needs from the forward pass it keeps as handles (ops/kept.h), never as tensors.
//
//   backward(kWhole)      each node's input gradients, then its weight jobs at once
//   backward(kInputOnly)  input gradients; weight jobs wait for run_weight_jobs() (zero bubble)
//
// A pipeline micro-batch in flight is a tape; recomputation (ops/recompute.h) keeps a segment's
// input and replays the segment on a tape of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ops/context.h"
#include "ops/kept.h"

namespace piton {

// A tensor and its number on the tape that recorded it; -1: no gradient flows to it. Views of a
// tensor in other shapes share its number: a gradient has the value's elements in their order, in
// any shape.
struct Value {
  Tensor tensor;
  std::int64_t id = -1;
  bool wants_gradient() const { return id >= 0; }
};

class Tape;

// What a node's backward function may use. Values are named by id: a node must not keep the tensors
// of its outputs alive.
class Backward {
 public:
  Backward(Context& context, Tape& tape) : context_(context), tape_(tape) {}
  Context& context() const { return context_; }  // its tape is null
  bool runs_jobs_at_once() const;                // Mode::kWhole

  // The gradient given so far to a value, waited for; empty if none came. It is taken: who gives
  // again gives the first. Nodes take those of their outputs; a norm also takes its input's, to add
  // it in its own kernel. The tensor may be shared: it is not to be written to.
  Tensor take(std::int64_t id);
  // Adds `gradient` to that of a value. The first handle is kept as it is: the caller must not
  // write to it afterwards. `ready`: compute waits for it before the gradient is used (a collective
  // that is under way). Ignored for id -1.
  void give(std::int64_t id, Tensor gradient, Event ready = {});
  // Memory of this shape to write the gradient of a value to, before it is given: where the value
  // is a part of another (Tape::part), its part of that one's gradient; else new memory. It is for
  // that value alone: who writes to it gives it to no other.
  Tensor place(std::int64_t id, DType dtype, const Shape& shape);
  // Queues a weight job; it runs after this node's function, or when the schedule says so.
  void defer(std::function<void(Context&)> job);
  // Takes over the jobs that a replayed segment's tape has queued.
  void adopt_jobs(Tape& replayed);

 private:
  Context& context_;
  Tape& tape_;
};

class Tape {
 public:
  enum class Mode : std::uint8_t { kWhole, kInputOnly };

  // `keeper` decides where kept tensors are, and outlives the tape; null: they stay in their place.
  explicit Tape(Keeper* keeper = nullptr) : keeper_(keeper) {}

  // A value that gradients flow to but that no node made: a stage's input.
  Value leaf(Tensor tensor);
  // A value made by the node that is recorded next.
  Value output(Tensor tensor);
  // The same, a part of another value: `place` gives its part of that one's gradient.
  using GradientPlace = std::function<Tensor(const Context&)>;
  Value part(Tensor tensor, GradientPlace place);
  // The same, made in the memory of `source`: its gradient's place is that of the source.
  Value in_place_of(const Value& source, Tensor tensor);
  void record(std::function<void(Backward&)> node);

  // Keeps `tensor` for a node's backward. An empty tensor gives an empty handle.
  Kept keep(const Tensor& tensor);
  // An op calls this before it writes to a tensor that it did not make (an op in place). Asserts
  // that no node of this tape keeps any byte of it: that node's backward would read other values.
  void overwrite(const Tensor& tensor);

  // Sets the gradient of a value before backward: the loss's seed, or what the next stage sent.
  void seed(const Value& value, Tensor gradient);
  // Runs and drops all nodes, last first. `context.tape` is ignored.
  void backward(Context context, Mode mode);
  // Runs and drops the queued weight jobs, in order.
  void run_weight_jobs(Context context);
  // After backward: the gradient of a leaf, waited for on the context's stream; empty if none.
  Tensor take_gradient(const Value& value, const Context& context);

  bool empty() const { return nodes_.empty() && jobs_.empty(); }
  std::size_t queued_weight_jobs() const { return jobs_.size(); }

 private:
  friend class Backward;
  struct Gradient {
    Tensor tensor;
    Event ready;
    GradientPlace place;  // of a part, until it is asked for
  };
  struct InPlace {  // a kept tensor's extent, while it is kept
    std::weak_ptr<KeptTensor> kept;
    std::weak_ptr<Storage> storage;
    std::pair<std::int64_t, std::int64_t> bytes;  // of the storage: first, one after the last
  };
  Keeper* keeper_;
  std::vector<InPlace> kept_;
  std::vector<Gradient> gradients_;  // by value id
  std::vector<std::function<void(Backward&)>> nodes_;
  std::vector<std::function<void(Context&)>> jobs_;
  Mode mode_ = Mode::kWhole;
};

}  // namespace piton
