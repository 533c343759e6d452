// Executes a schedule on this stage: the one runtime for every schedule, and for no pipeline at all
// (one stage, one chunk, the steps F B F B ...).
#pragma once

#include <functional>
#include <vector>

#include "comm/mesh.h"
#include "nn/chunk.h"
#include "parallel/schedule.h"

namespace piton {

struct PipelineResult {
  Tensor loss_sum;  // fp64 [1] on the device: this rank's sum of mask * loss over the step; zero but on the last stage
};

class Pipeline {
 public:
  // `chunks`: this stage's chunks, in the order of schedule.chunks_of_stage(stage). `group`: the
  // pipeline group, member = stage.
  Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group);

  // One step: all micro-batches forward and backward. inputs[m] is micro-batch m on the device (every
  // stage gets them: tokens for the first, labels for the last). Gradients are added to the
  // parameters through context.weights. Receives are posted ahead; a sent tensor's slot is held until
  // its message has left.
  PipelineResult train(Context context, const std::vector<ModelInput>& inputs);

  // Forward only, in order, without tapes; for evaluation.
  PipelineResult evaluate(Context context, const std::vector<ModelInput>& inputs);

  // Called before each step with what is about to run: tests, fault injection, timing.
  std::function<void(const Step&)> observer;

 private:
  Schedule schedule_;
  std::vector<Chunk*> chunks_;
  Communicator* group_;
};

}  // namespace piton
