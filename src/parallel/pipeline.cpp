#include "parallel/pipeline.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "parallel/stage_messages.h"

namespace piton {
namespace {

// A micro-batch in one chunk, between its forward and its last backward part.
struct Flight {
  Tape tape;
  std::vector<Value> inputs;   // leaves; the tape's nodes hold what they need of them
  ChunkOutput output;          // ids only: the tensors are the next chunk's now
};

void forget_tensors(std::vector<Value>& values) {
  for (Value& value : values) value.tensor = {};
}

Tensor zero_sum(const Context& context) {
  Tensor sum = context.activation(DType::kF64, {1});
  context.device.zero(sum, context.stream);
  return sum;
}

void add_loss(const Context& context, const Tensor& total, const LossOutput& loss) {
  context.kernels.run(Add{.y = total, .a = total, .b = loss.sum.tensor}, context.stream);
}

}  // namespace

Pipeline::Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group)
    : schedule_(std::move(schedule)), chunks_(std::move(chunks)), group_(&group) {
  check(schedule_);
  PITON_ASSERT(schedule_.stages == group.size(), "a schedule of {} stages on {} ranks", schedule_.stages,
               group.size());
  const std::vector<int> own = schedule_.chunks_of_stage(group.rank());
  PITON_ASSERT(own.size() == chunks_.size(), "stage {} has {} chunks, got {}", group.rank(), own.size(),
               chunks_.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    PITON_ASSERT(chunks_[i]->first() == (own[i] == 0), "chunk {} and the model's first", own[i]);
    PITON_ASSERT(chunks_[i]->last() == (own[i] == schedule_.chunks() - 1), "chunk {} and the model's last",
                 own[i]);
  }
}

Chunk& Pipeline::chunk(int index) {
  const std::vector<int> own = schedule_.chunks_of_stage(group_->rank());
  const auto found = std::ranges::find(own, index);
  PITON_ASSERT(found != own.end(), "chunk {} is not on stage {}", index, group_->rank());
  return *chunks_[found - own.begin()];
}

void Pipeline::learn_boundaries(const std::vector<ModelInput>& inputs) {
  for (const ModelInput& input : inputs) {
    const std::pair<std::int64_t, std::int64_t> size{input.samples, input.sequence};
    if (boundaries_.contains(size)) continue;
    boundaries_[size] = exchange_boundaries(schedule_, chunks_, input, *group_);
  }
}

PipelineResult Pipeline::train(Context context, const std::vector<ModelInput>& inputs) {
  PITON_ASSERT(static_cast<int>(inputs.size()) == schedule_.micro_batches,
               "{} micro-batches for a schedule of {}", inputs.size(), schedule_.micro_batches);
  learn_boundaries(inputs);
  const std::vector<Step>& steps = schedule_.steps[group_->rank()];
  StageMessages messages(schedule_, *group_, context, [&](int chunk, int micro_batch) {
    const ModelInput& input = inputs[micro_batch];
    return boundaries_.at({input.samples, input.sequence})[chunk];
  });
  messages.expect(steps);
  std::map<std::pair<int, int>, Flight> flights;
  Tensor loss_sum = zero_sum(context);

  for (const Step& step : steps) {
    if (observer) observer(step);
    messages.post_receives();
    const std::pair<int, int> key{step.chunk, step.micro_batch};
    const ModelInput& input = inputs[step.micro_batch];
    context.rows = input.rows;
    switch (step.pass) {
      case Pass::kForward: {
        Flight& flight = flights[key];
        if (step.chunk > 0) {
          for (Tensor& tensor : messages.take(Direction::kForward, step.chunk - 1, step.micro_batch)) {
            flight.inputs.push_back(flight.tape.leaf(std::move(tensor)));
          }
        }
        Context on_tape = context.with_tape(&flight.tape);
        flight.output = chunk(step.chunk).forward(on_tape, input, flight.inputs);
        forget_tensors(flight.inputs);
        if (step.chunk + 1 < schedule_.chunks()) {
          messages.give(Direction::kForward, step.chunk, step.micro_batch, flight.output.boundary);
          forget_tensors(flight.output.boundary);
        } else {
          add_loss(context, loss_sum, flight.output.loss);
          flight.output.loss.per_token = {};
        }
        break;
      }
      case Pass::kBackward:
      case Pass::kBackwardInput: {
        Flight& flight = flights.at(key);
        if (step.chunk + 1 < schedule_.chunks()) {
          std::vector<Tensor> gradients =
              messages.take(Direction::kBackward, step.chunk, step.micro_batch);
          for (std::size_t i = 0; i < gradients.size(); ++i) {
            flight.tape.seed(flight.output.boundary[i], std::move(gradients[i]));
          }
        } else {
          flight.tape.seed(flight.output.loss.sum, flight.output.loss.sum.tensor);
        }
        const bool whole = step.pass == Pass::kBackward;
        flight.tape.backward(context, whole ? Tape::Mode::kWhole : Tape::Mode::kInputOnly);
        if (step.chunk > 0) {
          std::vector<Value> gradients;
          const auto& shapes = boundaries_.at({input.samples, input.sequence})[step.chunk - 1];
          for (std::size_t i = 0; i < flight.inputs.size(); ++i) {
            Tensor gradient = flight.tape.take_gradient(flight.inputs[i], context);
            if (!gradient.defined()) {  // the chunk did not use this input
              gradient = context.activation(shapes[i].dtype, shapes[i].shape);
              context.device.zero(gradient, context.stream);
            }
            gradients.push_back({std::move(gradient)});
          }
          messages.give(Direction::kBackward, step.chunk - 1, step.micro_batch, gradients);
        }
        if (whole) flights.erase(key);
        break;
      }
      case Pass::kBackwardWeight: {
        flights.at(key).tape.run_weight_jobs(context);
        flights.erase(key);
        break;
      }
    }
  }
  PITON_ASSERT(flights.empty(), "{} micro-batches did not go back", flights.size());
  return {loss_sum};
}

PipelineResult Pipeline::evaluate(Context context, const std::vector<ModelInput>& inputs) {
  context.tape = nullptr;
  context.training = false;
  learn_boundaries(inputs);
  const std::vector<int> own = schedule_.chunks_of_stage(group_->rank());
  std::vector<Step> steps;
  for (int m = 0; m < static_cast<int>(inputs.size()); ++m) {
    for (const int chunk : own) steps.push_back({Pass::kForward, m, chunk});
  }
  StageMessages messages(schedule_, *group_, context, [&](int chunk, int micro_batch) {
    const ModelInput& input = inputs[micro_batch];
    return boundaries_.at({input.samples, input.sequence})[chunk];
  });
  messages.expect(steps);
  Tensor loss_sum = zero_sum(context);
  for (const Step& step : steps) {
    if (observer) observer(step);
    messages.post_receives();
    const ModelInput& input = inputs[step.micro_batch];
    context.rows = input.rows;
    std::vector<Value> values;
    if (step.chunk > 0) {
      for (Tensor& tensor : messages.take(Direction::kForward, step.chunk - 1, step.micro_batch)) {
        values.push_back({std::move(tensor)});
      }
    }
    ChunkOutput output = chunk(step.chunk).forward(context, input, values);
    if (step.chunk + 1 < schedule_.chunks()) {
      messages.give(Direction::kForward, step.chunk, step.micro_batch, output.boundary);
    } else {
      add_loss(context, loss_sum, output.loss);
    }
  }
  return {loss_sum};
}

}  // namespace piton
