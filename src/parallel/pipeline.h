// Executes a schedule on this stage. All schedules use this runtime. A run without a pipeline is a
// schedule of one stage and one chunk, with the steps F B F B ...
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
  // The named sums of this stage's chunks (nn/chunk.h, NamedSum), added up over all micro-batches:
  // fp64 [1] each, on the device. Empty if the chunks return no sums.
  std::map<std::string, Tensor, std::less<>> sums;
  // Of training, on the last stage: the logits that inputs ask for, of each micro-batch.
  std::vector<Tensor> logits;
};

class Pipeline {
 public:
  // `chunks`: this stage's chunks, in the order of schedule.chunks_of_stage(stage). `group`: the
  // pipeline group; a rank's index in it is its stage. Throws Error(kUsage) if the schedule is
  // invalid (check()).
  Pipeline(Schedule schedule, std::vector<Chunk*> chunks, Communicator& group);

  const Schedule& schedule() const { return schedule_; }
  // Replaces the schedule, for another number of micro-batches. Stages and chunks must be the same.
  // Throws Error(kUsage) if it is invalid.
  void set_schedule(Schedule schedule);

  // One step: forward and backward of all micro-batches. inputs[m] is micro-batch m on the device;
  // every stage gets all of them (the first stage needs tokens, the last one labels). Gradients are
  // added to the parameters through context.weights. Receives are posted early. The memory of a
  // tensor that is being sent is not reused before the send is complete. `sums`: fp64, where the
  // sums of the result are, one after another; empty: in other memory.
  PipelineResult train(Context context, const std::vector<ModelInput>& inputs,
                       const Tensor& sums = {});

  // Forward passes of any number of micro-batches, in order, without tapes. With
  // `context.training`, dropout draws the masks that train() draws for the same inputs. On the last
  // stage, calls `each` with the index of the micro-batch and the output of the last chunk.
  using ForEachOutput = std::function<void(int micro_batch, ChunkOutput& output)>;
  PipelineResult forward(Context context, const std::vector<ModelInput>& inputs,
                         const ForEachOutput& each = {});

  // True on the stage of the last chunk.
  bool on_last_stage() const { return schedule_.stage_of_chunk.back() == group_->rank(); }
  // Adds every layer of this stage to `cache`.
  void add_layers(KvCache& cache) const;
  // The last chunk, on its stage; null on others.
  Chunk* last_chunk();

  // Called before each step of the schedule with that step: for tests, fault injection and timing.
  std::function<void(const Step&)> observer;
  // Makes the keeper of each tape; empty: kept tensors stay in place.
  std::function<std::unique_ptr<Keeper>()> make_keeper;
  // Ranks with the same boundaries, which each send a part of them (StageMessages::scatter_over);
  // null: each sends the whole.
  Communicator* scatter_over = nullptr;

 private:
  class Run;
  Chunk& chunk(int index);  // index among the chunks of the whole model
  StageMessages messages(const Context& context, const std::vector<ModelInput>& inputs,
                         const std::vector<Step>& steps);

  Schedule schedule_;
  std::vector<Chunk*> chunks_;
  Communicator* group_;
};

}  // namespace piton
