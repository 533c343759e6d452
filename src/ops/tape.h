// How one micro-batch goes back.
//
// A Value is a tensor and its place on a tape. An op computes its output; if it was handed a tape it
// records a node: a function that takes the output's gradient and gives the inputs' gradients, and
// puts each weight gradient on the tape's queue of weight jobs. Nothing is kept unless a tape is
// handed in, and a node is dropped as soon as it has run: activations go as backward proceeds.
//
//   backward(kWhole)      each node's input gradients, then its weight jobs at once
//   backward(kInputOnly)  input gradients; weight jobs wait for run_weight_jobs() (zero bubble)
//
// A pipeline micro-batch in flight is a tape; recomputation (ops/recompute.h) keeps a segment's
// input and replays the segment on a tape of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/context.h"

namespace piton {

// A tensor and its number on the tape that recorded it; -1: no gradient flows to it.
struct Value {
  Tensor tensor;
  std::int64_t id = -1;
  bool wants_gradient() const { return id >= 0; }
};

class Tape;

// What a node's backward function may use.
class Backward {
 public:
  Backward(Context& context, Tape& tape) : context_(context), tape_(tape) {}
  Context& context() const { return context_; }  // its tape is null

  // The gradient of an output of this node; empty if none came (the node was not reached).
  // The caller owns it: it may overwrite it.
  Tensor take(const Value& output);
  // Adds `gradient` to that of an input. Keeps the handle if it is the first: the caller must not
  // write to it afterwards. Ignored for values that want none.
  void give(const Value& input, Tensor gradient);
  // Queues a weight job; it runs after this node's function, or when the schedule says so.
  void defer(std::function<void(Context&)> job);

 private:
  Context& context_;
  Tape& tape_;
};

class Tape {
 public:
  enum class Mode : std::uint8_t { kWhole, kInputOnly };

  // A value that gradients flow to but that no node made: a stage's input.
  Value leaf(Tensor tensor);
  // Makes `tensor` the output of the node that is recorded next with record().
  Value output(Tensor tensor);
  void record(std::function<void(Backward&)> node);

  // Sets the gradient of a value before backward: the loss's seed, or what the next stage sent.
  void seed(const Value& value, Tensor gradient);
  // Runs and drops all nodes, last first. `context.tape` is ignored.
  void backward(Context context, Mode mode);
  // Runs and drops the queued weight jobs, in order.
  void run_weight_jobs(Context context);
  // After backward: the gradient of a leaf; empty if none.
  Tensor take_gradient(const Value& value);

  bool empty() const { return nodes_.empty() && jobs_.empty(); }
  std::size_t queued_weight_jobs() const { return jobs_.size(); }
  // Moves the queued weight jobs of `other` (a replayed segment) behind this tape's own.
  void adopt_jobs(Tape& other);

 private:
  friend class Backward;
  std::vector<Tensor> gradients_;  // by value id
  std::vector<std::function<void(Backward&)>> nodes_;
  std::vector<std::function<void(Context&)>> jobs_;
};

}  // namespace piton
