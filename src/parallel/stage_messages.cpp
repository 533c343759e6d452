#include "parallel/stage_messages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// The micro-batches of the forwards (backwards) of `chunk`, in the order of its stage.
std::vector<int> order_of(const Schedule& schedule, Direction direction, int chunk) {
  std::vector<int> order;
  for (const Step& step : schedule.steps[schedule.stage_of_chunk[chunk]]) {
    const bool forward = step.pass == Pass::kForward;
    if (step.chunk != chunk || step.pass == Pass::kBackwardWeight) continue;
    if (forward == (direction == Direction::kForward)) order.push_back(step.micro_batch);
  }
  return order;
}

}  // namespace

StageMessages::StageMessages(const Schedule& schedule, Communicator& group, const Context& context,
                             BoundaryOf boundary_of)
    : schedule_(schedule), group_(group), context_(context), boundary_of_(std::move(boundary_of)) {}

int StageMessages::source_stage(const Name& name) const {
  const auto& [direction, chunk, micro_batch] = name;
  return schedule_.stage_of_chunk[direction == Direction::kForward ? chunk : chunk + 1];
}

int StageMessages::target_stage(const Name& name) const {
  const auto& [direction, chunk, micro_batch] = name;
  return schedule_.stage_of_chunk[direction == Direction::kForward ? chunk + 1 : chunk];
}

std::int64_t StageMessages::tag(const Name& name, int tensor) const {
  const auto& [direction, chunk, micro_batch] = name;
  // A unique number for each boundary, direction, micro-batch and tensor, so that the order of
  // sends does not matter. Modulo lane_count() it is the lane.
  return (std::int64_t{micro_batch} * kMaxTensors + tensor) * lane_count(schedule_) +
         lane(direction, chunk);
}

int StageMessages::lane(Direction direction, int chunk) {
  return 2 * chunk + static_cast<int>(direction);
}

int StageMessages::lane_count(const Schedule& schedule) { return 2 * schedule.chunks(); }

std::vector<MessageLane> StageMessages::lanes(const Schedule& schedule) {
  std::vector<MessageLane> all;
  for (int chunk = 0; chunk + 1 < schedule.chunks(); ++chunk) {
    const int stage = schedule.stage_of_chunk[chunk];
    const int next = schedule.stage_of_chunk[chunk + 1];
    if (stage == next) continue;
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      if (order_of(schedule, direction, chunk) != order_of(schedule, direction, chunk + 1))
        continue;
      const bool forward = direction == Direction::kForward;
      all.push_back({forward ? stage : next, forward ? next : stage, lane(direction, chunk)});
    }
  }
  return all;
}

void StageMessages::expect(const std::vector<Step>& steps) {
  int last = 0;
  for (const Step& step : steps) last = std::max(last, step.micro_batch);
  if (group_.size() > 1 && tag({Direction::kBackward, schedule_.chunks() - 1, last},
                               kMaxTensors - 1) > group_.largest_tag()) {
    throw Error(Fault::kUsage,
                "--global-batch-size: {} micro-batches per step through {} chunks need more "
                "message tags than this MPI has ({}); use fewer, larger micro-batches",
                last + 1, schedule_.chunks(), group_.largest_tag());
  }
  for (const Step& step : steps) {
    const bool back = step.pass == Pass::kBackward || step.pass == Pass::kBackwardInput;
    Name name;
    if (step.pass == Pass::kForward && step.chunk > 0) {
      name = {Direction::kForward, step.chunk - 1, step.micro_batch};
    } else if (back && step.chunk + 1 < schedule_.chunks()) {
      name = {Direction::kBackward, step.chunk, step.micro_batch};
    } else {
      continue;
    }
    if (source_stage(name) != group_.rank()) expected_.push_back(name);
  }
}

void StageMessages::post_receives() {
  while (!expected_.empty() && incoming_.size() < kAhead) {
    post(expected_.front());
    expected_.pop_front();
  }
}

bool StageMessages::scatters(const Tensor& tensor) const {
  return tensors_ != nullptr && tensors_->size() > 1 && tensor.contiguous() &&
         tensor.elements() % tensors_->size() == 0;
}

Tensor StageMessages::own_part(const Tensor& tensor) const {
  if (!scatters(tensor)) return tensor;
  const std::int64_t part = tensor.elements() / tensors_->size();
  return tensor.flatten().slice(0, tensors_->rank() * part, part);
}

void StageMessages::post(const Name& name) {
  const auto& [direction, chunk, micro_batch] = name;
  Incoming& message = incoming_[name];
  int index = 0;
  for (const BoundaryTensor& shape : boundary_of_(chunk, micro_batch)) {
    Tensor tensor = context_.activation(shape.dtype, shape.shape);
    const Event event = group_.receive(own_part(tensor), source_stage(name),
                                       static_cast<int>(tag(name, index++)), context_.stream);
    context_.arena.hold(tensor, event.fence());
    message.tensors.push_back(std::move(tensor));
    message.events.push_back(event);
  }
}

std::vector<Tensor> StageMessages::take(Direction direction, int chunk, int micro_batch) {
  const Name name{direction, chunk, micro_batch};
  if (source_stage(name) == target_stage(name)) {
    const auto found = local_.find(name);
    PITON_ASSERT(found != local_.end(), "no message of chunk {}, micro-batch {}", chunk,
                 micro_batch);
    std::vector<Tensor> tensors = std::move(found->second);
    local_.erase(found);
    return tensors;
  }
  const auto found = incoming_.find(name);
  PITON_ASSERT(found != incoming_.end(), "chunk {}, micro-batch {}: not posted", chunk,
               micro_batch);
  Incoming message = std::move(found->second);
  incoming_.erase(found);
  std::vector<Event> gathered;
  for (std::size_t i = 0; i < message.tensors.size(); ++i) {
    const Tensor& tensor = message.tensors[i];
    if (!scatters(tensor)) {
      context_.stream.wait(message.events[i]);
      continue;
    }
    gathered.push_back(tensors_->all_gather(tensor.flatten(), own_part(tensor),
                                            {context_.stream, {message.events[i]}}));
    context_.arena.hold(tensor, gathered.back().fence());
  }
  for (const Event& event : gathered) context_.stream.wait(event);
  return std::move(message.tensors);
}

void StageMessages::give(Direction direction, int chunk, int micro_batch,
                         const std::vector<Value>& values) {
  const Name name{direction, chunk, micro_batch};
  const std::vector<BoundaryTensor> shapes = boundary_of_(chunk, micro_batch);
  PITON_ASSERT(values.size() == shapes.size() && values.size() <= kMaxTensors,
               "a boundary of {} tensors, declared with {}", values.size(), shapes.size());
  const int target = target_stage(name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Tensor& tensor = values[i].tensor;
    PITON_ASSERT(tensor.dtype() == shapes[i].dtype && tensor.shape() == shapes[i].shape,
                 "boundary of chunk {}: {}, declared {} {}", chunk, to_string(tensor),
                 piton::name(shapes[i].dtype), to_string(shapes[i].shape));
    if (target == group_.rank()) {
      local_[name].push_back(tensor);
      continue;
    }
    const Event sent =
        group_.send(own_part(tensor), target, static_cast<int>(tag(name, static_cast<int>(i))),
                    context_.stream);
    context_.arena.hold(tensor, sent.fence());
  }
}

}  // namespace piton
