// Options of the pipeline: the order of passes, the layers of each stage, and micro-batches of
// unequal sizes. The flags are those of Megatron-LM and AscendSpeed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/options/options.h"
#include "parallel/schedule.h"

namespace piton {

// The names of --pipeline-schedule. Some are one ScheduleKind with other settings.
enum class PipelineOrder : std::uint8_t {
  kOneForwardOneBackward,
  kInterleaved,
  kOptimized,        // 1F1B over micro-batches of unequal sizes (AscendSpeed's optimized pipeline)
  kAllInAllOut,      // Fold3D
  kFirstInFirstOut,  // Fold3D: the order of kInterleaved
  kZeroBubbleH1,
  kZeroBubbleV,
  kDualPipeV,
};

const std::vector<std::pair<std::string, PipelineOrder>>& pipeline_orders();
ScheduleKind schedule_kind(PipelineOrder order);

// Sizes of the micro-batches of AscendSpeed's preset for so many stages; empty if there is none.
std::vector<std::int64_t> preset_sizes(int stages);

struct PipelineOptions {
  PipelineOrder schedule = PipelineOrder::kOneForwardOneBackward;
  std::optional<std::int64_t> layers_of_chunk;  // more than one chunk a stage, by its layers
  std::optional<std::int64_t> chunks;           // or by their number
  std::optional<std::int64_t> group;            // default: the number of stages
  std::optional<std::string> fold_mode;
  std::optional<std::int64_t> split_rank;
  bool optimized = false;
  std::vector<std::string> micro_batches;  // sizes, or the name of a preset
  bool manual_allocation = false;
  std::string manual_layers;  // "3,5,5,3"
  bool recompute_by_stage = false;
  bool scatter_boundaries = true;
  bool balance = false;

  // The schedule of a model of `layers` layers on `stages` stages. Throws Error(kUsage) naming the
  // flag if options contradict each other or do not fit.
  ScheduleSettings settings(int stages, std::int64_t layers) const;

  // The first stage of the decoder of a model with an encoder (`both`); 0: the model is one stage,
  // or has one stack. Throws Error(kUsage) naming the flag.
  int split_stage(int stages, bool both) const;

  // Layers of each of the model's chunks by --manual-layers; empty if it is not given. Throws
  // Error(kUsage) unless there are `chunks` positive numbers whose sum is `layers`.
  std::vector<std::int64_t> layers_of_chunks(int chunks, std::int64_t layers) const;

  // Sizes of the micro-batches of a rank that takes `samples` samples a step, `micro_batch` at a
  // time on average; empty if they are equal. Throws Error(kUsage) if the sizes do not fit.
  std::vector<std::int64_t> micro_batch_sizes(int stages, std::int64_t micro_batch,
                                              std::int64_t samples) const;
  // Those of --manual-mbs, as they are given.
  std::vector<std::int64_t> listed_sizes() const;
  // The flag that asks for unequal micro-batches, without dashes; nullptr if none does.
  const char* optimizing_flag() const;
  // By --pipeline-schedule and --foldx-mode alone. Throws Error(kUsage) if they disagree.
  ScheduleKind kind() const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"pipeline-schedule",
             "order of forward and backward passes on the stages; interleaved, aiao and fifo (of "
             "Fold3D) need several chunks of the model on each stage, zb-v and dualpipe-v have "
             "two, opp (1f1b with unequal micro-batches) needs --manual-mbs"},
      Choice<PipelineOrder>(schedule, pipeline_orders()));
    v(Option{"pipeline-model-parallel-split-rank",
             "t5: the first stage of the decoder; the stages before it have the encoder",
             {.placeholder = "N"}},
      split_rank);
    v(Option{"num-layers-per-virtual-pipeline-stage",
             "interleave: each stage has several chunks of the model, of this many layers",
             {.placeholder = "N"}},
      layers_of_chunk);
    v(Option{"num-virtual-stages-per-pipeline-rank",
             "interleave: the number of chunks of each stage",
             {.placeholder = "N"}},
      chunks);
    v(Option{"microbatch-group-size-per-virtual-pipeline-stage",
             "interleaved: micro-batches that pass one chunk of a stage before the next (default: "
             "the number of stages)",
             {.placeholder = "N"}},
      group);
    v(Option{"foldx-mode",
             "Fold3D on interleaved stages, as --pipeline-schedule aiao and fifo: aiao: all "
             "micro-batches pass a chunk before the next, so that its gradients are summed under "
             "the backward of another; fifo: in groups",
             {.aliases = {"fold-mode"}, .choices = {"aiao", "fifo"}}},
      fold_mode);
    v(Option{"optimized-pipeline", "micro-batches have the unequal sizes of --manual-mbs"},
      optimized);
    v(Option{"manual-mbs",
             "samples of each micro-batch, or a preset: example-config-1 (4 stages, 64 samples a "
             "step and data rank), example-config-2 (8 stages, 96)",
             {.placeholder = "N"}},
      micro_batches);
    v(Option{"use-manual-layer-allocation", "stages have the layers of --manual-layers"},
      manual_allocation);
    v(Option{"manual-layers",
             "how many layers each stage has (or each chunk of the model, if stages have several), "
             "as in 3,5,5,3",
             {.placeholder = "N,N"}},
      manual_layers);
    v(Option{"enable-recompute-layers-per-pp-rank",
             "--recompute-num-layers counts layers of a stage, as it does with one chunk a stage; "
             "refused with several, where it counts those of each chunk"},
      recompute_by_stage);
    v(Option{"balance-layers",
             "stages have the numbers of layers with which the slowest one is fastest, by "
             "operations, where the last one also has the head"},
      balance);
    v(Option{"scatter-gather-tensors-in-pipeline",
             "each tensor rank sends its part of a boundary between stages, which the ranks of the "
             "next stage gather; --sequence-parallel has divided it anyway"},
      scatter_boundaries);
  }
};

// How many of `layers` layers each chunk has, at least one, so that the stage with most work has as
// little as possible. The head is in the last chunk, and takes as long as `head` layers. Each layer
// goes to the stage with the least work, the first of them, and there to the smallest chunk.
std::vector<std::int64_t> balanced_layers(std::int64_t layers,
                                          const std::vector<int>& stage_of_chunk, double head);

}  // namespace piton
