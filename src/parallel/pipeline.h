// Executes a schedule on this stage: the one runtime for every schedule, and for no pipeline at all
// (one stage, one chunk, the steps F B F B ...).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "comm/mesh.h"
#include "nn/chunk.h"
#include "parallel/schedule.h"
#include "parallel/stage_messages.h"

namespace piton {

struct PipelineResult {
  Tensor loss_sum;  // fp64 [1] on the device: this rank's sum of mask * loss over the step; zero
                    // but on the last stage
};

class Pipeline {
 public:
  // `chunks`: this stage's chunks, in the order of schedule.chunks_of_stage(stage). `group`: the
  // pipeline group, member = stage. Throws Error(kUsage) if the schedule is not valid (check()).
  Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group);

  // One step: all micro-batches forward and backward. inputs[m] is micro-batch m on the device
  // (every stage gets them: tokens for the first, labels for the last). Gradients are added to the
  // parameters through context.weights. Receives are posted ahead; a sent tensor's slot is held
  // until its message has left. The first step with a new size of micro-batch is also a rendezvous
  // of the stages: they tell each other what their boundaries look like.
  PipelineResult train(Context context, const std::vector<ModelInput>& inputs);

  // Forward only, in order, without tapes and dropout, for any number of micro-batches.
  PipelineResult evaluate(Context context, const std::vector<ModelInput>& inputs);

  // Called before each step with what is about to run: tests, fault injection, timing.
  std::function<void(const Step&)> observer;

 private:
  class Run;
  Chunk& chunk(int index);  // of the whole model
  void learn_boundaries(const std::vector<ModelInput>& inputs);
  StageMessages messages(const Context& context, const std::vector<ModelInput>& inputs,
                         const std::vector<Step>& steps);

  Schedule schedule_;
  std::vector<Chunk*> chunks_;
  Communicator* group_;
  // By samples and sequence of a micro-batch: what each chunk gives to the next.
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::vector<BoundaryTensor>>>
      boundaries_;
};

}  // namespace piton
