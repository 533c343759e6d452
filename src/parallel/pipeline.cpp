#include "parallel/pipeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// A micro-batch in one chunk, between its forward and its last backward part.
struct Flight {
  explicit Flight(std::unique_ptr<Keeper> of_tape) : keeper(std::move(of_tape)) {}

  std::unique_ptr<Keeper> keeper;  // or null
  Tape tape{keeper.get()};
  std::vector<Value> inputs;  // leaves of the tape; their tensors are only in the nodes that need
                              // them
  ChunkOutput output;         // without boundary tensors, which belong to the next chunk
};

void forget_tensors(std::vector<Value>& values) {
  for (Value& value : values) value.tensor = {};
}

// Adds up the named sums of a step.
class Sums {
 public:
  // `memory`: as of Pipeline::train.
  explicit Sums(const Context& context, const Tensor& memory = {})
      : context_(context), memory_(memory) {}

  void add(const std::vector<NamedSum>& sums) {
    for (const NamedSum& sum : sums) {
      Tensor& total = result_.sums[sum.name];
      if (!total.defined()) {
        const auto place = std::ssize(result_.sums) - 1;
        total =
            memory_.defined() ? memory_.slice(0, place, 1) : context_.activation(DType::kF64, {1});
        context_.device.zero(total, context_.stream);
      }
      context_.kernels.run(Add{.y = total, .a = total, .b = sum.value.tensor}, context_.stream);
    }
  }
  PipelineResult result() const { return result_; }

 private:
  const Context& context_;
  Tensor memory_;
  PipelineResult result_;
};

}  // namespace

Pipeline::Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group)
    : schedule_(std::move(schedule)), chunks_(std::move(chunks)), group_(&group) {
  check(schedule_);
  PITON_ASSERT(schedule_.stages == group.size(), "a schedule of {} stages on {} ranks",
               schedule_.stages, group.size());
  const std::vector<int> own = schedule_.chunks_of_stage(group.rank());
  PITON_ASSERT(own.size() == chunks_.size(), "stage {} has {} chunks, got {}", group.rank(),
               own.size(), chunks_.size());
  open_lanes(group, StageMessages::lanes(schedule_), StageMessages::lane_count(schedule_));
}

void Pipeline::set_schedule(Schedule schedule) {
  check(schedule);
  PITON_ASSERT(
      schedule.stages == schedule_.stages && schedule.stage_of_chunk == schedule_.stage_of_chunk,
      "a schedule of other stages or chunks");
  schedule_ = std::move(schedule);
}

Chunk& Pipeline::chunk(int index) {
  const std::vector<int> own = schedule_.chunks_of_stage(group_->rank());
  const auto found = std::ranges::find(own, index);
  PITON_ASSERT(found != own.end(), "chunk {} is not on stage {}", index, group_->rank());
  return *chunks_[found - own.begin()];
}

StageMessages Pipeline::messages(const Context& context, const std::vector<ModelInput>& inputs,
                                 const std::vector<Step>& steps) {
  StageMessages messages(schedule_, *group_, context, [this, &inputs](int chunk, int micro_batch) {
    return chunks_.front()->boundary(chunk, inputs[micro_batch]);
  });
  if (scatter_over != nullptr) messages.scatter_over(*scatter_over);
  messages.expect(steps);
  return messages;
}

// Executes the passes of one training step.
class Pipeline::Run {
 public:
  Run(Pipeline& pipeline, Context& context, const std::vector<ModelInput>& inputs,
      StageMessages& messages, const Tensor& sums)
      : pipeline_(pipeline),
        context_(context),
        inputs_(inputs),
        messages_(messages),
        sums_(context, sums) {}

  // `backward_is_next`: of this micro-batch in this chunk.
  void forward(const Step& step, bool backward_is_next) {
    Flight& flight = flights_
                         .try_emplace({step.chunk, step.micro_batch},
                                      pipeline_.make_keeper ? pipeline_.make_keeper() : nullptr)
                         .first->second;
    if (step.chunk > 0) {
      for (Tensor& tensor : messages_.take(Direction::kForward, step.chunk - 1, step.micro_batch)) {
        flight.inputs.push_back(flight.tape.leaf(std::move(tensor)));
      }
    }
    Context on_tape = context_.with_tape(&flight.tape);
    Chunk& chunk = pipeline_.chunk(step.chunk);
    flight.output = chunk.forward(on_tape, inputs_[step.micro_batch], flight.inputs);
    forget_tensors(flight.inputs);
    sums_.add(flight.output.sums);
    flight.output.token_losses = {};
    if (flight.output.logits.defined()) {
      logits_.resize(inputs_.size());
      logits_[static_cast<std::size_t>(step.micro_batch)] = std::move(flight.output.logits);
      flight.output.logits = {};
    }
    if (!is_last(step)) {
      messages_.give(Direction::kForward, step.chunk, step.micro_batch, flight.output.boundary);
      forget_tensors(flight.output.boundary);
    }
    if (!backward_is_next) flight.tape.begin_block();
  }

  void backward(const Step& step, Tape::Mode mode) {
    Flight& flight = flights_.at({step.chunk, step.micro_batch});
    for (const NamedSum& sum : flight.output.sums) {
      // The seed only starts the backward pass from this sum; the op that computed the sum knows
      // the scale of its gradient.
      if (sum.value.wants_gradient()) flight.tape.seed(sum.value, sum.value.tensor);
    }
    if (!is_last(step)) {
      std::vector<Tensor> gradients =
          messages_.take(Direction::kBackward, step.chunk, step.micro_batch);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        flight.tape.seed(flight.output.boundary[i], std::move(gradients[i]));
      }
    }
    flight.tape.backward(context_, mode);
    if (step.chunk > 0) give_gradients(step, flight);
    if (mode == Tape::Mode::kWhole) flights_.erase({step.chunk, step.micro_batch});
  }

  void run_weight_jobs(const Step& step) {
    flights_.at({step.chunk, step.micro_batch}).tape.run_weight_jobs(context_);
    flights_.erase({step.chunk, step.micro_batch});
  }

  PipelineResult result() const {
    PipelineResult result = sums_.result();
    result.logits = logits_;
    return result;
  }

 private:
  bool is_last(const Step& step) const { return step.chunk + 1 == pipeline_.schedule_.chunks(); }

  void give_gradients(const Step& step, Flight& flight) {
    const std::vector<BoundaryTensor> shapes =
        pipeline_.chunk(step.chunk).boundary(step.chunk - 1, inputs_[step.micro_batch]);
    std::vector<Value> gradients;
    for (std::size_t i = 0; i < flight.inputs.size(); ++i) {
      Tensor gradient = flight.tape.take_gradient(flight.inputs[i], context_);
      if (!gradient.defined()) {  // the chunk did not use this input
        gradient = context_.activation(shapes[i].dtype, shapes[i].shape);
        context_.device.zero(gradient, context_.stream);
      }
      gradients.push_back({std::move(gradient)});
    }
    messages_.give(Direction::kBackward, step.chunk - 1, step.micro_batch, gradients);
  }

  Pipeline& pipeline_;
  Context& context_;
  const std::vector<ModelInput>& inputs_;
  StageMessages& messages_;
  std::map<std::pair<int, int>, Flight> flights_;  // by chunk and micro-batch
  Sums sums_;
  std::vector<Tensor> logits_;
};

PipelineResult Pipeline::train(Context context, const std::vector<ModelInput>& inputs,
                               const Tensor& sums) {
  PITON_ASSERT(static_cast<int>(inputs.size()) == schedule_.micro_batches,
               "{} micro-batches for a schedule of {}", inputs.size(), schedule_.micro_batches);
  const std::vector<Step>& steps = schedule_.steps[group_->rank()];
  StageMessages mail = messages(context, inputs, steps);
  Run run(*this, context, inputs, mail, sums);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    if (observer) observer(step);
    mail.post_receives();
    context.rows = inputs[step.micro_batch].rows;
    switch (step.pass) {
      case Pass::kForward: {
        const bool returns = i + 1 < steps.size() && steps[i + 1].chunk == step.chunk &&
                             steps[i + 1].micro_batch == step.micro_batch;
        run.forward(step, returns);
        break;
      }
      case Pass::kBackward:
        run.backward(step, Tape::Mode::kWhole);
        break;
      case Pass::kBackwardInput:
        run.backward(step, Tape::Mode::kInputOnly);
        break;
      case Pass::kBackwardWeight:
        run.run_weight_jobs(step);
        break;
    }
  }
  return run.result();
}

PipelineResult Pipeline::forward(Context context, const std::vector<ModelInput>& inputs,
                                 const ForEachOutput& each) {
  context.tape = nullptr;
  const std::vector<int> own = schedule_.chunks_of_stage(group_->rank());
  // As many micro-batches as there are stages pass one chunk before they pass the next, so that all
  // stages have work.
  const int all = static_cast<int>(inputs.size());
  const int group = own.size() > 1 ? schedule_.stages : 1;
  std::vector<Step> steps;
  for (int begin = 0; begin < all; begin += group) {
    for (const int chunk : own) {
      for (int m = begin; m < std::min(begin + group, all); ++m) {
        steps.push_back({Pass::kForward, m, chunk});
      }
    }
  }
  StageMessages mail = messages(context, inputs, steps);
  Sums sums(context);
  for (const Step& step : steps) {
    if (observer) observer(step);
    mail.post_receives();
    const ModelInput& input = inputs[step.micro_batch];
    context.rows = input.rows;
    std::vector<Value> values;
    if (step.chunk > 0) {
      for (Tensor& tensor : mail.take(Direction::kForward, step.chunk - 1, step.micro_batch)) {
        values.push_back({std::move(tensor)});
      }
    }
    ChunkOutput output = chunk(step.chunk).forward(context, input, values);
    sums.add(output.sums);
    if (step.chunk + 1 < schedule_.chunks()) {
      mail.give(Direction::kForward, step.chunk, step.micro_batch, output.boundary);
    } else if (each) {
      each(step.micro_batch, output);
    }
  }
  return sums.result();
}

void Pipeline::add_layers(KvCache& cache) const {
  for (const Chunk* chunk : chunks_) chunk->add_layers(cache);
}

Chunk* Pipeline::last_chunk() {
  const int last = static_cast<int>(schedule_.stage_of_chunk.size()) - 1;
  return on_last_stage() ? &chunk(last) : nullptr;
}

}  // namespace piton
