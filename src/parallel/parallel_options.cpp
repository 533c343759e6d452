#include "parallel/parallel_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/options/byte_size.h"
#include "base/options/option_range.h"
#include "comm/sequence_stretches.h"

namespace piton {
namespace {

void expect_positive(const char* flag, int value) {
  if (value >= 1) return;
  throw Error(Fault::kUsage, "parallel: --{} is {}, wanted at least 1", flag, value);
}

// The ranks of one data-parallel rank.
struct Replica {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;

  // Throws Error(kUsage) that names a flag whose value is below 1.
  std::int64_t ranks() const {
    expect_positive("tensor-model-parallel-size", tensor);
    expect_positive("context-parallel-size", context);
    expect_positive("pipeline-model-parallel-size", pipeline);
    return checked_product("--context-parallel-size", "ranks", tensor, context, pipeline);
  }
  std::string text() const {
    const std::string of_context = context > 1 ? fmt::format(" x context {}", context) : "";
    return fmt::format("tensor {}{} x pipeline {}", tensor, of_context, pipeline);
  }
};

MeshSizes mesh_of(int world_size, const Replica& replica) {
  const std::int64_t ranks = replica.ranks();
  if (world_size % ranks != 0) {
    throw Error(
        Fault::kUsage,
        "mesh: {} {} cannot form {}; start a multiple of {} (piton launch {} COMMAND ...), or "
        "change --tensor-model-parallel-size{} or --pipeline-model-parallel-size",
        world_size, world_size == 1 ? "process" : "processes", replica.text(), ranks, ranks,
        replica.context > 1 ? ", --context-parallel-size" : "");
  }
  MeshSizes sizes;
  sizes[Axis::kTensor] = replica.tensor;
  sizes[Axis::kContext] = replica.context;
  sizes[Axis::kPipeline] = replica.pipeline;
  sizes[Axis::kData] = static_cast<int>(world_size / ranks);
  return sizes;
}

// One number of --recomputation-layer-num for each stage, within its layers.
void check_layers_of_stages(const std::vector<std::int64_t>& counts,
                            const std::vector<std::int64_t>& layers_of_stages) {
  const std::size_t stages = layers_of_stages.size();
  if (counts.size() != stages) {
    throw Error(
        Fault::kUsage,
        "parallel: --recomputation-layer-num: got {} numbers, wanted {}, one for each stage "
        "of --pipeline-model-parallel-size",
        counts.size(), stages);
  }
  for (std::size_t stage = 0; stage < stages; ++stage) {
    check_range(fmt::format("parallel: --recomputation-layer-num of stage {}", stage),
                counts[stage], 0, layers_of_stages[stage]);
  }
}

RecomputedParts parts_of(const std::vector<std::string>& modules) {
  RecomputedParts parts;
  for (const std::string& one : modules) {
    if (one == "core_attn") {
      parts.attention = true;
    } else if (one == "layernorm") {
      parts.norms = true;
    } else if (one == "activation") {
      parts.activation = true;
    } else if (one == "mlp") {
      parts.mlp = true;
    } else {
      throw Error(Fault::kUsage,
                  "parallel: --recompute-modules: got \"{}\", wanted core_attn, layernorm, "
                  "activation or mlp",
                  one);
    }
  }
  return parts;
}

void needs(bool given, const char* flag, bool has, const char* what) {
  if (!given || has) return;
  throw Error(Fault::kUsage, "parallel: --{}: needs {}", flag, what);
}

}  // namespace

RecomputeRequest ParallelOptions::effective_recompute() const {
  if (auto_recompute_mebibytes == -1) {
    const bool alone = recompute == RecomputeRequest::kNone;
    return alone && (recompute_norm || recompute_activation) ? RecomputeRequest::kSelective
                                                             : recompute;
  }
  check_range("parallel: --auto-recompute-device-size (MiB, or -1)", auto_recompute_mebibytes, 1,
              kLargestSize);
  if (recompute != RecomputeRequest::kNone || !memory_limit.empty()) {
    throw Error(Fault::kUsage,
                "parallel: --auto-recompute-device-size: means --recompute-granularity auto "
                "--memory-limit {}MiB; leave those flags out",
                auto_recompute_mebibytes);
  }
  return RecomputeRequest::kAuto;
}

// Norms and activations that are computed again in addition to the parts of `rules`, and of how
// many of the `most_layers` layers of a stage.
void ParallelOptions::add_small_parts(RecomputeRules& rules, std::int64_t most_layers) const {
  const bool selective = rules.granularity == RecomputeGranularity::kSelective;
  const char* const wants_parts =
      "layers that are not computed again whole: --recompute-granularity none or selective, or "
      "--recompute-method block or custom";
  needs(recompute_norm, "recompute-norm", selective || rules.block, wants_parts);
  needs(recompute_activation, "recompute-activation-function", selective || rules.block,
        wants_parts);
  if (recompute == RecomputeRequest::kSelective) rules.parts = rules.parts_again();
  rules.parts.norms |= recompute_norm;
  rules.parts.activation |= recompute_activation;
  if (rules.parts.mlp && rules.parts.activation) {
    throw Error(Fault::kUsage,
                "parallel: --recompute-modules: mlp has activation in it; give one of them");
  }
  const auto check = [&](const std::optional<std::int64_t>& count, const char* flag, bool has,
                         const char* what) {
    needs(count.has_value(), flag, has, what);
    if (count) {
      check_range(fmt::format("parallel: --{} (of a stage)", flag), *count, 0, most_layers);
    }
  };
  check(recompute_norm_layers, "recompute-norm-num-layers", rules.parts.norms, "--recompute-norm");
  check(recompute_activation_layers, "recompute-activation-function-num-layers",
        rules.parts.activation, "--recompute-activation-function");
  rules.norm_layers = recompute_norm_layers;
  rules.activation_layers = recompute_activation_layers;
}

void ParallelOptions::check_distribution(bool full) const {
  const char* const flag = "distribute-saved-activations";
  needs(true, flag, full, "--recompute-granularity full, whose kept inputs it divides");
  needs(true, flag, tensor > 1, "--tensor-model-parallel-size of 2 or more, over which it divides");
  if (!linears.sequence_parallel) return;
  throw Error(Fault::kUsage,
              "parallel: --{}: --sequence-parallel divides them already; leave one of them out",
              flag);
}

RecomputeRules ParallelOptions::recompute_rules(
    const std::vector<std::int64_t>& layers_of_stages) const {
  const std::int64_t most_layers = std::ranges::max(layers_of_stages);
  const RecomputeRequest request = effective_recompute();
  const bool full = request == RecomputeRequest::kFull;
  const bool selective = request == RecomputeRequest::kSelective;
  const bool custom = recompute_method == "custom";
  const char* const wants_full = "--recompute-granularity full, which runs layers again";
  needs(recompute_method.has_value(), "recompute-method", full, wants_full);
  needs(recompute_layers.has_value(), "recompute-num-layers", full, wants_full);
  needs(!recompute_modules.empty(), "recompute-modules",
        selective || (full && (custom || recompute_method == "block")),
        "--recompute-granularity selective, or the layers that --recompute-method block or custom "
        "leaves");
  needs(!recompute_layers_of_stage.empty(), "recomputation-layer-num", full && custom,
        "--recompute-granularity full --recompute-method custom");
  RecomputeRules rules{.granularity = full        ? RecomputeGranularity::kFull
                                      : selective ? RecomputeGranularity::kSelective
                                                  : RecomputeGranularity::kNone,
                       .block = custom || recompute_method == "block",
                       .layers = recompute_layers.value_or(1),
                       .parts = parts_of(recompute_modules),
                       .distributed = distribute_inputs};
  add_small_parts(rules, most_layers);
  if (distribute_inputs) check_distribution(full);
  if (custom) {
    needs(recompute_layers.has_value(), "recompute-num-layers", false,
          "--recompute-method uniform or block; custom has --recomputation-layer-num");
    check_layers_of_stages(recompute_layers_of_stage, layers_of_stages);
    rules.layers_of_stage = recompute_layers_of_stage;
  } else if (recompute_layers) {
    check_range("parallel: --recompute-num-layers (of a stage)", *recompute_layers, 1, most_layers);
  }
  return rules;
}

std::optional<std::int64_t> ParallelOptions::recompute_limit() const {
  const bool automatic = effective_recompute() == RecomputeRequest::kAuto;
  if (auto_recompute_mebibytes > 0) return auto_recompute_mebibytes << 20;
  if (automatic == !memory_limit.empty()) {
    if (!automatic) return {};
    return bytes_of_size("--memory-limit", memory_limit);
  }
  if (automatic) {
    throw Error(
        Fault::kUsage,
        "parallel: --recompute-granularity auto: needs --memory-limit SIZE, what a rank may "
        "hold");
  }
  throw Error(Fault::kUsage, "parallel: --memory-limit: needs --recompute-granularity auto");
}

int ParallelOptions::planned_ranks(const std::optional<std::int64_t>& world_size) const {
  if (world_size) {
    check_range("--world-size", *world_size, 1, kMostRanks);
    return static_cast<int>(*world_size);
  }
  expect_positive("expert-model-parallel-size", expert);
  const Replica replica{tensor, pipeline, context};
  const std::int64_t ranks =
      checked_product("--expert-model-parallel-size", "ranks", replica.ranks(), expert);
  if (ranks > kMostRanks) {
    throw Error(Fault::kUsage, "mesh: {}{} are {} ranks, wanted 1 to {}", replica.text(),
                expert > 1 ? fmt::format(" x expert {}", expert) : "", ranks, kMostRanks);
  }
  return static_cast<int>(ranks);
}

// Divides the data-parallel ranks.
void ParallelOptions::divide_experts(MeshSizes& sizes) const {
  const int ranks = sizes[Axis::kData];
  if (ranks % expert != 0) {
    throw Error(
        Fault::kUsage,
        "parallel: --expert-model-parallel-size: got {}, wanted a number that divides the {} "
        "data-parallel ranks (processes / tensor / context / pipeline)",
        expert, ranks);
  }
  sizes[Axis::kExpert] = expert;
  sizes[Axis::kData] = ranks / expert;
}

MeshSizes ParallelOptions::check(int world_size) const {
  static_cast<void>(linears.strategy());
  if (zero_stage < 0 || zero_stage > 3) {
    throw Error(Fault::kUsage, "parallel: --zero-stage is {}, wanted 0, 1, 2 or 3", zero_stage);
  }
  expect_positive("expert-model-parallel-size", expert);
  MeshSizes sizes = mesh_of(world_size, {tensor, pipeline, context});
  divide_experts(sizes);
  check_instances(sizes);
  static_cast<void>(context_forms());
  return sizes;
}

void ParallelOptions::check_instances(const MeshSizes& sizes) const {
  const char* const flag = "num-distributed-optimizer-instances";
  expect_positive(flag, zero_instances);
  if (zero_instances == 1) return;
  needs(true, flag, effective_zero_stage() > 0,
        "--use-distributed-optimizer or --zero-stage 1, 2 or 3, whose shards it holds several "
        "times");
  // Those that hold an expert; all of them, where experts are not divided.
  const int ranks = sizes[Axis::kData] * sizes[Axis::kContext];
  if (ranks % zero_instances == 0) return;
  throw Error(Fault::kUsage,
              "parallel: --{}: got {}, wanted a number that divides the {} data-parallel ranks{}{}",
              flag, zero_instances, ranks, expert > 1 ? " of an expert" : "",
              context > 1 ? " (with those of the context)" : "");
}

ContextForms ParallelOptions::context_forms() const {
  ContextForms forms{.slices = linears.slices_of_heads()};
  forms.exchanges.clear();
  for (const std::string& type : context_exchanges) {
    forms.exchanges.push_back(type == "p2p"       ? ContextExchange::kRing
                              : type == "a2a"     ? ContextExchange::kHeads
                              : type == "a2a+p2p" ? ContextExchange::kHeadsAndRing
                                                  : ContextExchange::kGather);
  }
  const bool both = forms.has(ContextExchange::kHeadsAndRing);
  const std::vector<int>& sizes = hierarchical_context;
  const char* const flag = "hierarchical-context-parallel-sizes";
  needs(!sizes.empty(), flag, both, "--cp-comm-type a2a+p2p, whose ranks it divides");
  needs(both, "cp-comm-type a2a+p2p", !sizes.empty(),
        "--hierarchical-context-parallel-sizes, the ranks that exchange heads and those of a ring");
  if (!both) return forms;
  for (const int size : sizes) expect_positive(flag, size);
  const bool fits = sizes.size() == 1   ? context % sizes[0] == 0
                    : sizes.size() == 2 ? std::int64_t{sizes[0]} * sizes[1] == context
                                        : false;
  if (!fits) {
    throw Error(Fault::kUsage,
                "parallel: --{}: got {}, wanted two numbers whose product is "
                "--context-parallel-size, which is {}",
                flag, fmt::join(sizes, " "), context);
  }
  forms.heads = sizes[0];
  return forms;
}

std::int64_t ParallelOptions::sequence_multiple(bool dropout) const {
  if (context == 1) return 1;
  const ContextForms forms = context_forms();
  std::int64_t multiple = SequenceStretches{0, context}.count();
  for (const ContextExchange exchange : {ContextExchange::kRing, ContextExchange::kHeadsAndRing}) {
    const int ring = context / forms.heads_of(exchange, context);
    // Masks of attention are drawn for four keys at a time (kernels/attention.h).
    if (dropout && ring > 1 && forms.has(exchange))
      multiple = std::lcm(multiple, std::int64_t{4} * SequenceStretches{0, ring}.count());
  }
  return multiple;
}

void ParallelOptions::check_sequence(std::int64_t sequence, bool dropout) const {
  const std::int64_t multiple = sequence_multiple(dropout);
  if (sequence % multiple == 0) return;
  const bool fours = multiple > SequenceStretches{0, context}.count();
  throw Error(Fault::kUsage,
              "--seq-length: got {}, wanted a multiple of {}: --context-parallel-size {} cuts "
              "samples into {} stretches{}",
              sequence, multiple, context, 2 * context,
              fours ? ", and with --attention-dropout those of a ring of --cp-comm-type p2p or "
                      "a2a+p2p have 4 tokens each or a multiple"
                    : "");
}

MeshSizes InferenceOptions::check(int world_size) const {
  if (zero_stage != 0 && zero_stage != 3) {
    throw Error(Fault::kUsage,
                "parallel: --zero-stage is {}, wanted 0 or 3: a model that only reads has no "
                "gradients and no optimizer state to share",
                zero_stage);
  }
  const MeshSizes sizes = mesh_of(world_size, {tensor, pipeline});
  if (sizes[Axis::kData] > 1 && zero_stage == 0) {
    throw Error(Fault::kUsage,
                "mesh: {} processes, and tensor {} x pipeline {} has work for {}; start {}, change "
                "--tensor-model-parallel-size or --pipeline-model-parallel-size, or share the "
                "weights with --zero-stage 3",
                world_size, tensor, pipeline, tensor * pipeline, tensor * pipeline);
  }
  return sizes;
}

}  // namespace piton
