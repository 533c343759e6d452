// Messages between the chunks of a pipeline: boundaries forward, their gradients backward.
//
// Receives are posted early, for the next kAhead messages that the steps of this stage need. Sends
// start at once; the memory of a tensor is not reused before its send is complete. Between chunks
// of one stage the tensor is passed on without a message.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "nn/chunk.h"
#include "parallel/schedule.h"

namespace piton {

enum class Direction : std::uint8_t { kForward, kBackward };

class StageMessages {
 public:
  static constexpr std::size_t kAhead = 2;
  static constexpr int kMaxTensors = 4;  // of a boundary

  using BoundaryOf = std::function<std::vector<BoundaryTensor>(int chunk, int micro_batch)>;

  // `boundary_of`: what chunk `chunk` gives to the next one; asked for boundaries on both sides.
  StageMessages(const Schedule& schedule, Communicator& group, const Context& context,
                BoundaryOf boundary_of);

  // The steps that follow: their messages, in order. Throws Error(kUsage) if there are more than
  // the group has tags for.
  void expect(const std::vector<Step>& steps);
  void post_receives();

  // A message is named by the chunk that gave the boundary (whose gradient it may be).
  // The tensors; the context's stream has waited for them.
  std::vector<Tensor> take(Direction direction, int chunk, int micro_batch);
  void give(Direction direction, int chunk, int micro_batch, const std::vector<Value>& values);

 private:
  using Name = std::tuple<Direction, int, int>;  // direction, chunk, micro-batch
  struct Incoming {
    std::vector<Tensor> tensors;
    std::vector<Event> events;
  };
  std::int64_t tag(const Name& name, int tensor) const;
  int source_stage(const Name& name) const;
  int target_stage(const Name& name) const;
  void post(const Name& name);

  const Schedule& schedule_;
  Communicator& group_;
  const Context& context_;
  BoundaryOf boundary_of_;
  std::deque<Name> expected_;          // from other stages, not posted
  std::map<Name, Incoming> incoming_;  // posted, not taken
  std::map<Name, std::vector<Tensor>> local_;
};

}  // namespace piton
