// The tape records what the backward pass of one micro-batch has to run.
//
// A Value is a tensor and its number on a tape. An op computes its output. If the context has a
// tape, the op also records a node: a function that takes the gradient of the output, computes the
// gradients of the inputs, and queues a weight job for each weight gradient. Without a tape nothing
// is kept. A node is destroyed as soon as it has run, so activations are freed as backward
// proceeds. Tensors of the forward pass are kept as handles (ops/kept.h), never captured directly.
//
//   backward(kWhole)      runs each node, then its weight jobs at once
//   backward(kInputOnly)  runs the nodes; weight jobs wait for run_weight_jobs() (zero bubble)
//
// Each micro-batch in flight in a pipeline has its own tape. Recomputation (ops/recompute.h) keeps
// the inputs of a segment and replays the segment on a separate tape.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "ops/context.h"
#include "ops/kept.h"

namespace piton {

// A tensor and its number on the tape that recorded it; -1: no gradient flows to it. A view of the
// tensor in another shape has the same number: a gradient has the same elements in the same order
// as the value, but may have another shape.
struct Value {
  Tensor tensor;
  std::int64_t id = -1;
  bool wants_gradient() const { return id >= 0; }
};

class Tape;

// The interface of a node's backward function. It refers to values by id, because a node must not
// keep the tensors of its outputs alive.
class Backward {
 public:
  Backward(Context& context, Tape& tape) : context_(context), tape_(tape) {}
  Context& context() const { return context_; }  // its tape is null
  bool runs_jobs_at_once() const;                // Mode::kWhole

  // Removes and returns the gradient that a value has so far; empty if it has none. Compute waits
  // until the gradient is ready. A later give() starts a new sum. A node takes the gradients of its
  // outputs. A norm also takes that of its input, to add it in its own kernel. Do not write to the
  // tensor: others may share it.
  Tensor take(std::int64_t id);
  // Adds `gradient` to the gradient of a value. The first one is stored without a copy: the caller
  // must not write to it afterwards. Compute waits for `ready`, for example a collective that
  // produces the gradient, before it uses it. Does nothing for id -1.
  void give(std::int64_t id, Tensor gradient, Event ready = {});
  // Memory of this shape for the gradient of a value, to be filled and then passed to give() for
  // the same value. If the value is a part of another one (Tape::part), this is that part of the
  // other's gradient; else it is new memory.
  Tensor place(std::int64_t id, DType dtype, const Shape& shape);
  // Queues a weight job. It runs directly after this node (kWhole) or in run_weight_jobs().
  void defer(std::function<void(Context&)> job);
  // A kept tensor that a weight job will read. If the job has to wait and the tensor is to be
  // computed again, that is done now: it would hold what it is computed from, which is more.
  Kept for_job(const Kept& kept) const {
    if (!runs_jobs_at_once()) static_cast<void>(kept.get());
    return kept;
  }
  // Moves the queued jobs of a replayed segment's tape to this one.
  void adopt_jobs(Tape& replayed);

 private:
  Context& context_;
  Tape& tape_;
};

class Tape {
 public:
  enum class Mode : std::uint8_t { kWhole, kInputOnly };

  // `keeper` decides where kept tensors are stored and must outlive the tape; null: in place.
  explicit Tape(Keeper* keeper = nullptr) : keeper_(keeper) {}

  // A value that no node computes but whose gradient is needed, such as the input of a stage.
  Value leaf(Tensor tensor);
  // A value that the node recorded next has computed.
  Value output(Tensor tensor);
  // An output that is a part of another value. `place` returns the matching part of that value's
  // gradient.
  using GradientPlace = std::function<Tensor(const Context&)>;
  Value part(Tensor tensor, GradientPlace place);
  // An output computed in the memory of `source`. Its gradient has the same place as that of
  // `source`.
  Value in_place_of(const Value& source, Tensor tensor);
  void record(std::function<void(Backward&)> node);

  // Keeps `tensor` for the backward function of a node. An empty tensor gives an empty handle.
  Kept keep(const Tensor& tensor);
  // Tells the keeper that backward returns to here before it needs what was kept so far, and which
  // layer of the chunk follows.
  void begin_block(std::optional<std::int64_t> layer = {}) {
    if (keeper_ != nullptr) keeper_->begin_block(layer);
  }
  // A tensor of an op that can be computed again: keep() of the same tensor gives handles to
  // `kept`, so that its memory is free once forward needs it no more. Its memory must not be
  // written to before that.
  void provide(const Tensor& tensor, std::shared_ptr<KeptTensor> kept);
  // An op that works in place calls this before it overwrites its input. Asserts that no node of
  // this tape keeps any byte of `tensor`: its backward would read the new values.
  void overwrite(const Tensor& tensor);

  // Sets the gradient of a value before backward: the seed of the loss, or the gradient that the
  // next stage sent.
  void seed(const Value& value, Tensor gradient);
  // Runs and destroys all nodes, the last one first. `context.tape` is ignored.
  void backward(Context context, Mode mode);
  // Runs and destroys the queued weight jobs, the first one first.
  void run_weight_jobs(Context context);
  // After backward: the gradient of a leaf; empty if it has none. The context's stream waits until
  // it is ready.
  Tensor take_gradient(const Value& value, const Context& context);

  bool empty() const { return nodes_.empty() && jobs_.empty(); }
  std::size_t queued_weight_jobs() const { return jobs_.size(); }

 private:
  friend class Backward;
  struct Gradient {
    Tensor tensor;
    Event ready;
    GradientPlace place;  // of a part, until Backward::place() uses it
  };
  struct InPlace {  // the bytes of a kept tensor
    std::weak_ptr<KeptTensor> kept;
    std::weak_ptr<Storage> storage;
    std::pair<std::int64_t, std::int64_t> bytes;  // of the storage: first, one after the last
  };
  struct Provided {
    std::shared_ptr<KeptTensor> kept;
    std::weak_ptr<Storage> storage;
    const std::byte* first = nullptr;
    Shape shape;
  };
  Keeper* keeper_;
  std::vector<InPlace> kept_;
  std::vector<Provided> provided_;   // in forward
  std::vector<Gradient> gradients_;  // by value id
  std::vector<std::function<void(Backward&)>> nodes_;
  std::vector<std::function<void(Context&)>> jobs_;
  Mode mode_ = Mode::kWhole;
};

}  // namespace piton
