// Messages between the chunks of a pipeline. A boundary is the list of tensors that one chunk
// passes to the next. Boundaries are sent forward, their gradients backward.
//
// Receives are posted early, for the next kAhead messages that the steps of this stage need. Sends
// start at once; the memory of a tensor is not reused before its send is complete. Between chunks
// of one stage the tensor is passed on without a message.
//
// Tensor ranks with the same boundary may send a part each, and gather it on the other side
// (Megatron-LM's scatter-gather; Narayanan et al. 2021, arXiv:2104.04473, section 4.1): over the
// links between stages each tensor then goes once, and not once for each tensor rank.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "comm/message_lanes.h"
#include "nn/chunk.h"
#include "parallel/schedule.h"

namespace piton {

enum class Direction : std::uint8_t { kForward, kBackward };

class StageMessages {
 public:
  static constexpr std::size_t kAhead = 2;
  static constexpr int kMaxTensors = 4;  // in one boundary

  using BoundaryOf = std::function<std::vector<BoundaryTensor>(int chunk, int micro_batch)>;

  // `boundary_of`: dtypes and shapes of the boundary between `chunk` and the next chunk. It is
  // called for the boundaries before and after the chunks of this stage.
  StageMessages(const Schedule& schedule, Communicator& group, const Context& context,
                BoundaryOf boundary_of);

  // The messages between stages: a lane for each boundary and direction, where both stages have the
  // micro-batches in the same order.
  static std::vector<MessageLane> lanes(const Schedule& schedule);
  static int lane_count(const Schedule& schedule);

  // From now on each of the ranks of `tensors`, which all have the same boundaries, sends its part
  // of a tensor and gathers what it receives. All ranks of a pipeline call it, or none. Call it
  // before expect().
  void scatter_over(Communicator& tensors) { tensors_ = &tensors; }

  // Announces the steps of this stage, whose messages will be received in this order. Throws
  // Error(kUsage) if there are more messages than the group has tags.
  void expect(const std::vector<Step>& steps);
  // Posts the receives of the next messages, up to kAhead that are not taken.
  void post_receives();

  // In both directions, `chunk` is the chunk before the boundary: the sender of kForward and the
  // receiver of kBackward.
  //
  // The tensors of a message; the context's stream waits for them. Each message is taken once.
  std::vector<Tensor> take(Direction direction, int chunk, int micro_batch);
  // Sends a message. Its tensors must have the dtypes and shapes of the boundary.
  void give(Direction direction, int chunk, int micro_batch, const std::vector<Value>& values);

 private:
  using Name = std::tuple<Direction, int, int>;  // direction, chunk, micro-batch
  struct Incoming {
    std::vector<Tensor> tensors;
    std::vector<Event> events;
  };
  std::int64_t tag(const Name& name, int tensor) const;
  static int lane(Direction direction, int chunk);
  int source_stage(const Name& name) const;
  int target_stage(const Name& name) const;
  void post(const Name& name);
  // Whether a boundary of this shape is sent in parts, and the part of this rank; else the tensor.
  bool scatters(const Tensor& tensor) const;
  Tensor own_part(const Tensor& tensor) const;

  const Schedule& schedule_;
  Communicator& group_;
  Communicator* tensors_ = nullptr;
  const Context& context_;
  BoundaryOf boundary_of_;
  std::deque<Name> expected_;                  // from other stages, not posted yet
  std::map<Name, Incoming> incoming_;          // posted, not taken yet
  std::map<Name, std::vector<Tensor>> local_;  // between chunks of this stage, not taken yet
};

}  // namespace piton
