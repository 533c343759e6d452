// Executes a schedule on this stage: the one runtime for every schedule, and for no pipeline at all
// (one stage, one chunk, the steps F B F B ...).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "nn/chunk.h"
#include "parallel/schedule.h"
#include "parallel/stage_messages.h"

namespace piton {

struct PipelineResult {
  // fp64 [1] on the device: what the chunks of this stage gave over all micro-batches, by name
  // (nn/chunk.h, NamedSum). Empty where none of them gives any.
  std::map<std::string, Tensor, std::less<>> sums;
};

class Pipeline {
 public:
  // `chunks`: this stage's chunks, in the order of schedule.chunks_of_stage(stage). `group`: the
  // pipeline group, member = stage. Throws Error(kUsage) if the schedule is not valid (check()).
  Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group);

  // One step: all micro-batches forward and backward. inputs[m] is micro-batch m on the device
  // (every stage gets them: tokens for the first, labels for the last). Gradients are added to the
  // parameters through context.weights. Receives are posted ahead; a sent tensor's slot is held
  // until its message has left.
  PipelineResult train(Context context, const std::vector<ModelInput>& inputs);

  // Forward only, in order, without tapes and dropout, for any number of micro-batches. `each` gets
  // what the last chunk gave, on its stage, with the micro-batch's number.
  using ForEachOutput = std::function<void(int micro_batch, ChunkOutput& output)>;
  PipelineResult forward(Context context, const std::vector<ModelInput>& inputs,
                         const ForEachOutput& each = {});

  // True on the stage of the last chunk.
  bool on_last_stage() const { return schedule_.stage_of_chunk.back() == group_->rank(); }
  // Room in `cache` for every layer of this stage.
  void add_layers(KvCache& cache) const;

  // Called before each step with what is about to run: tests, fault injection, timing.
  std::function<void(const Step&)> observer;

 private:
  class Run;
  Chunk& chunk(int index);  // of the whole model
  StageMessages messages(const Context& context, const std::vector<ModelInput>& inputs,
                         const std::vector<Step>& steps);

  Schedule schedule_;
  std::vector<Chunk*> chunks_;
  Communicator* group_;
};

}  // namespace piton
