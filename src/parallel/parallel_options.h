// Options of the parallel layout of a run, and the mesh that they define. The data-parallel size is
// the number of ranks divided by tensor x context x pipeline. These ranks are those of the expert
// and of the data axis: each has different samples.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "comm/mesh.h"
#include "nn/kv_cache.h"
#include "ops/context/context_group.h"
#include "ops/recompute.h"
#include "parallel/linear_options.h"
#include "parallel/pipeline_options.h"

namespace piton {

// As asked for; ParallelOptions::recompute_rules() says what it means.
enum class RecomputeRequest : std::uint8_t { kNone, kFull, kSelective, kAuto };

// Of a layout that is planned or shown: each rank is computed one after another.
inline constexpr std::int64_t kMostRanks = 1 << 20;

struct ParallelOptions {
  int tensor = 1;
  int context = 1;
  std::vector<std::string> context_exchanges{"p2p"};
  std::vector<int> hierarchical_context;  // ranks that exchange heads, ranks of a ring
  int expert = 1;
  bool sends_rows_to_experts = false;
  int pipeline = 1;
  LinearOptions linears;
  bool use_distributed_optimizer = false;
  int zero_stage = 0;
  int zero_instances = 1;
  PipelineOptions schedule;
  RecomputeRequest recompute = RecomputeRequest::kNone;
  std::string memory_limit;                      // "": none
  std::optional<std::string> recompute_method;   // default: uniform
  std::optional<std::int64_t> recompute_layers;  // default: 1
  std::vector<std::int64_t> recompute_layers_of_stage;
  std::vector<std::string> recompute_modules;  // default: core_attn
  bool recompute_norm = false;                 // in addition to the modules
  bool recompute_activation = false;
  std::optional<std::int64_t> recompute_norm_layers;  // default: all
  std::optional<std::int64_t> recompute_activation_layers;
  bool distribute_inputs = false;
  std::int64_t auto_recompute_mebibytes = -1;  // -1: none

  // `layers_of_stages`: how many layers a chunk of each pipeline stage has at most
  // (LayerDivision::most_of_stages); with several chunks a stage, numbers of layers are of each
  // chunk. None under kAuto. Throws Error(kUsage) naming the flag.
  RecomputeRules recompute_rules(const std::vector<std::int64_t>& layers_of_stages) const;

  // How attention sees the rows of other context ranks. Throws Error(kUsage) naming the flag if the
  // context size is not the product of the sizes of a2a+p2p.
  ContextForms context_forms() const;

  // What the lengths of samples must be a multiple of, so that they can be divided over the context
  // ranks. `dropout`: of attention.
  std::int64_t sequence_multiple(bool dropout) const;
  // Throws Error(kUsage) if samples of `sequence` tokens cannot.
  void check_sequence(std::int64_t sequence, bool dropout) const;

  // Bytes of --memory-limit under kAuto. Throws Error(kUsage) if one is given without the other.
  std::optional<std::int64_t> recompute_limit() const;

  // What --recompute-granularity and the flags that mean one of its values ask for. Throws
  // Error(kUsage) if they contradict each other.
  RecomputeRequest effective_recompute() const;

  // 0 to 3. --use-distributed-optimizer is stage 1, unless --zero-stage is higher.
  int effective_zero_stage() const {
    return use_distributed_optimizer && zero_stage == 0 ? 1 : zero_stage;
  }

  // The number of ranks of a layout that is only shown: `world_size` (--world-size), or tensor x
  // context x expert x pipeline if it is not given. Throws Error(kUsage) unless it is 1 to
  // kMostRanks.
  int planned_ranks(const std::optional<std::int64_t>& world_size) const;

  // The mesh of `world_size` ranks. Throws Error(kUsage) naming the flag if a value is out of range
  // or `world_size` is not a multiple of tensor x context x expert x pipeline. ModelLayout::check
  // refuses layouts that do not fit the model.
  MeshSizes check(int world_size) const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tensor-model-parallel-size",
             "number of ranks that each layer's matrices are split over"},
      tensor);
    v(Option{"context-parallel-size",
             "number of ranks that the tokens of each sample are divided over"},
      context);
    v(Option{"cp-comm-type",
             "how attention sees the tokens of other context ranks, in all layers or, with a type "
             "for each, in each: p2p: keys and values travel around the ranks (ring attention); "
             "a2a: each rank gets whole samples of some heads (Ulysses); a2a+p2p: neighbors "
             "exchange heads, and rings go over the others "
             "(--hierarchical-context-parallel-sizes); allgather (all_gather): each rank gets the "
             "keys and values of all",
             {.choices = {"p2p", "a2a", "a2a+p2p", "allgather", "all_gather"}}},
      context_exchanges);
    v(Option{"hierarchical-context-parallel-sizes",
             "of --cp-comm-type a2a+p2p: how many neighboring ranks exchange heads, and how many "
             "a ring has; their product is --context-parallel-size, from which the second follows "
             "if it is left out"},
      hierarchical_context);
    v(Option{"expert-model-parallel-size",
             "number of ranks that the experts of each layer are divided over; they are "
             "data-parallel "
             "ranks, each with its own samples"},
      expert);
    v(Option{"moe-token-dispatcher-type",
             "how the tokens of --expert-model-parallel-size ranks get to their experts, with the "
             "same results: allgather: each rank gathers all tokens; alltoall (flex): a token goes "
             "to the ranks that have its experts"},
      Choice<bool>(sends_rows_to_experts,
                   {{"allgather", false}, {"alltoall", true}, {"flex", true}}));
    v(Option{"pipeline-model-parallel-size", "number of stages that the layers are divided into"},
      pipeline);
    linears.visit(v);
    v(Option{"use-distributed-optimizer",
             "shard the optimizer state over data-parallel ranks; same as --zero-stage 1"},
      use_distributed_optimizer);
    v(Option{"zero-stage",
             "what data-parallel ranks shard: 0 nothing, 1 optimizer state, 2 also gradients, 3 "
             "also weights"},
      zero_stage);
    v(
        Option{
            "num-distributed-optimizer-instances",
            "groups of data-parallel ranks (with --context-parallel-size, of data and context "
            "ranks), each of which shards by itself what --zero-stage shards; 2 on two hosts keeps "
            "gathers within a host"},
        zero_instances);
    schedule.visit(v);
    visit_recomputation(v);
  }

 private:
  template <typename Visitor>
  void visit_recomputation(Visitor& v) {
    v(Option{"recompute-granularity",
             "what backward computes again: full: layers, of which only the input is kept; "
             "selective: attention, without its projections, or --recompute-modules; auto: the "
             "least "
             "with which every rank fits --memory-limit"},
      Choice<RecomputeRequest>(recompute, {{"none", RecomputeRequest::kNone},
                                           {"full", RecomputeRequest::kFull},
                                           {"selective", RecomputeRequest::kSelective},
                                           {"auto", RecomputeRequest::kAuto}}));
    v(Option{"memory-limit",
             "memory of a rank for --recompute-granularity auto, as piton plan counts it (16GB, "
             "900MiB)",
             {.placeholder = "SIZE"}},
      memory_limit);
    v(Option{"recompute-method",
             "with full: uniform (full in AscendSpeed): all layers, in groups; block: the first "
             "layers of each stage; custom: as many as --recomputation-layer-num says",
             {.choices = {"uniform", "block", "custom", "full"}}},
      recompute_method);
    v(Option{"recompute-num-layers",
             "uniform: layers per group, of which one input is kept; block: layers per stage, or "
             "per chunk of a stage that has several (default: 1)"},
      recompute_layers);
    v(Option{"recomputation-layer-num",
             "custom: how many layers of each stage (of each of its chunks), one number a stage",
             {.placeholder = "N"}},
      recompute_layers_of_stage);
    v(Option{"recompute-modules",
             "selective: what of each layer: core_attn (default), layernorm, activation (of a "
             "gated MLP), mlp; full block, full custom: what of the other layers",
             {.placeholder = "PART"}},
      recompute_modules);
    v(Option{"recompute-norm",
             "MindSpeed's spelling of --recompute-modules layernorm, also with others and alone"},
      recompute_norm);
    v(Option{"recompute-norm-num-layers",
             "of how many layers of each stage norms are computed again, after those that are "
             "computed again whole (default: all)"},
      recompute_norm_layers);
    v(Option{"recompute-activation-function",
             "MindSpeed's spelling of --recompute-modules activation, also with others and "
             "alone"},
      recompute_activation);
    v(Option{"recompute-activation-function-num-layers",
             "of how many layers of each stage the activation of the MLP is computed again, after "
             "those that are computed again whole (default: all)"},
      recompute_activation_layers);
    v(Option{"distribute-saved-activations",
             "with full: each tensor-parallel rank keeps its part of the input of a layer, and "
             "backward gathers them; without --sequence-parallel, which divides it anyway",
             {.aliases = {"distribute-checkpointed-activations", "partition-activations"}}},
      distribute_inputs);
    v(Option{"auto-recompute-device-size",
             "AscendSpeed's spelling of --recompute-granularity auto --memory-limit, in MiB (-1: "
             "not asked for)",
             {.aliases = {"adaptive-recompute-device-size"}, .placeholder = "MIB"}},
      auto_recompute_mebibytes);
  }

  void divide_experts(MeshSizes& sizes) const;
  void check_instances(const MeshSizes& sizes) const;
  void add_small_parts(RecomputeRules& rules, std::int64_t most_layers) const;
  void check_distribution(bool full) const;
};

// Options of the parallel layout for inference: generation and scoring.
struct InferenceOptions {
  int tensor = 1;
  int pipeline = 1;
  int zero_stage = 0;
  std::string quantize;                      // "": as the model is stored
  const char* quantize_flag = "--quantize";  // for messages
  CacheNumbers kv_cache_dtype = CacheNumbers::kOfModel;
  bool drafts_later = false;  // SessionSettings::drafts_later

  // The values of --quantize.
  static std::vector<std::string> code_formats() {
    return {"int8", "int4", "q8_0", "q4_0", "nf4", "q4_k", "q5_k", "q6_k"};
  }

  // The mesh of `world_size` ranks. Throws Error(kUsage) naming the flag. More than one
  // data-parallel rank is refused unless the weights are sharded over them (ZeRO stage 3).
  MeshSizes check(int world_size) const;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tensor-model-parallel-size",
             "number of ranks that each layer's matrices are split over"},
      tensor);
    v(Option{"pipeline-model-parallel-size", "number of stages that the layers are divided into"},
      pipeline);
    v(Option{"zero-stage",
             "3: shard the weights over the ranks beyond tensor x pipeline; 0: there are no such "
             "ranks"},
      zero_stage);
    v(Option{"quantize",
             "hold the matrices of the layers in 8 or 4 bits, quantized while they are read",
             {.choices = code_formats()}},
      quantize);
    v(Option{"kv-cache-dtype",
             "how keys and values of texts are held: in the model's type (auto), or in 8 bits with "
             "a scale for each token and head, about half the memory of bf16"},
      Choice(kv_cache_dtype, {{"auto", CacheNumbers::kOfModel}, {"int8", CacheNumbers::kInt8}}));
  }
};

}  // namespace piton
