// How the ranks of a run share a model and its batch: the flags, and the mesh that follows from
// them. Data parallelism takes the ranks that tensor and pipeline leave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "comm/mesh.h"
#include "ops/linear.h"
#include "ops/recompute.h"
#include "parallel/schedule.h"

namespace piton {

// As asked for; ParallelOptions::recompute_rules() says what it means.
enum class RecomputeRequest : std::uint8_t { kNone, kFull, kSelective, kAuto };

struct ParallelOptions {
  int tensor = 1;
  int pipeline = 1;
  LinearStrategy linears;
  bool use_distributed_optimizer = false;
  int zero_stage = 0;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  RecomputeRequest recompute = RecomputeRequest::kNone;
  std::string memory_limit;                      // "": none
  std::optional<std::string> recompute_method;   // uniform
  std::optional<std::int64_t> recompute_layers;  // 1
  std::vector<std::int64_t> recompute_layers_of_stage;
  std::vector<std::string> recompute_modules;  // core_attn

  // Of a model of `layers`; none under kAuto. Throws Error(kUsage) naming the flag.
  RecomputeRules recompute_rules(std::int64_t layers) const;

  // Bytes of --memory-limit under kAuto. Throws Error(kUsage) if one is given without the other.
  std::optional<std::int64_t> recompute_limit() const;

  // 0 to 3; the distributed optimizer is stage 1 where no higher one is asked for.
  int effective_zero_stage() const {
    return use_distributed_optimizer && zero_stage == 0 ? 1 : zero_stage;
  }

  // Throws Error(kUsage) naming the flag: a value out of its range, or a number of processes that
  // does not divide. ModelLayout::check refuses
  // what the model cannot be cut into, and sequence parallelism on one tensor rank.
  MeshSizes check(int world_size) const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tensor-model-parallel-size", "ranks that share each layer's matrices"}, tensor);
    v(Option{"pipeline-model-parallel-size", "stages that the layers are cut into"}, pipeline);
    v(Option{"sequence-parallel", "split activations between the matrices along the sequence, too"},
      linears.sequence_parallel);
    v(Option{"use-distributed-optimizer",
             "shard the optimizer's state over data-parallel ranks (--zero-stage 1)"},
      use_distributed_optimizer);
    v(Option{"zero-stage",
             "what data-parallel ranks shard: 0 nothing, 1 optimizer state, 2 and gradients, 3 and "
             "weights"},
      zero_stage);
    v(Option{"pipeline-schedule", "order of passes on the stages"},
      Choice<ScheduleKind>(schedule, {{"1f1b", ScheduleKind::kOneForwardOneBackward},
                                      {"zb-h1", ScheduleKind::kZeroBubbleH1}}));
    v(Option{"recompute-granularity",
             "what runs again in backward: full: layers, whose input alone is kept; selective: "
             "attention, without its projections, or --recompute-modules; auto: the least with "
             "which "
             "a rank fits --memory-limit"},
      Choice<RecomputeRequest>(recompute, {{"none", RecomputeRequest::kNone},
                                           {"full", RecomputeRequest::kFull},
                                           {"selective", RecomputeRequest::kSelective},
                                           {"auto", RecomputeRequest::kAuto}}));
    v(Option{"memory-limit",
             "recompute auto: what a rank may hold, as piton plan counts it (16GB, 900MiB)",
             {.placeholder = "SIZE"}},
      memory_limit);
    v(Option{"recompute-method",
             "full: uniform (or full, as AscendSpeed calls it): all layers, in groups; block: the "
             "first ones of each stage; custom: those of --recomputation-layer-num",
             {.choices = {"uniform", "block", "custom", "full"}}},
      recompute_method);
    v(Option{"recompute-num-layers",
             "uniform: layers of a group, of which one input is kept; block: layers of each stage "
             "(default: 1)"},
      recompute_layers);
    v(Option{"recomputation-layer-num",
             "custom: how many layers of each stage, one number a stage",
             {.placeholder = "N"}},
      recompute_layers_of_stage);
    v(Option{"recompute-modules",
             "selective: what of each layer: core_attn (default), layernorm, activation (of a "
             "gated MLP), mlp; full block, full custom: what of the other layers",
             {.placeholder = "PART"}},
      recompute_modules);
    v(Option{"num-slices",
             "parts that a split linear is cut into, to overlap its communication",
             {.aliases = {"coc-parallel-num"}}},
      linears.slices);
  }
};

// How the ranks share a model that only reads: to generate and to score.
struct InferenceOptions {
  int tensor = 1;
  int pipeline = 1;
  int zero_stage = 0;

  // Throws Error(kUsage) naming the flag. Ranks beyond tensor x pipeline are data-parallel ranks,
  // and have something to do under ZeRO-3 only.
  MeshSizes check(int world_size) const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tensor-model-parallel-size", "ranks that share each layer's matrices"}, tensor);
    v(Option{"pipeline-model-parallel-size", "stages that the layers are cut into"}, pipeline);
    v(Option{"zero-stage", "3: the remaining ranks share the weights; 0: there are none"},
      zero_stage);
  }
};

}  // namespace piton
