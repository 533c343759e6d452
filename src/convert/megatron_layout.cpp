#include "convert/megatron_layout.h"

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/options/option_range.h"
#include "megatron/megatron_writer.h"
#include "megatron/torch_dist_writer.h"

namespace piton {
namespace {

constexpr std::int64_t kMostRanks = 4096;
constexpr std::int64_t kUsualMultiple = 128;  // of rows of the table, as in Megatron

// A folder of torch_dist holds whole tensors.
void check_torch_dist(const ConvertOptions& options, const OpenedModel& from) {
  check_torch_dist_holds(from.model, from.source->where());
  const char* flag = options.deepspeed               ? "--deepspeed"
                     : options.apart_mlp             ? "--no-merge-mlp"
                     : !options.stage_layers.empty() ? "--num-layer-list"
                     : !options.empty_layers.empty() ? "--noop-layers"
                     : options.layers_of_virtual_stage != 0
                         ? "--num-layers-per-virtual-pipeline-stage"
                         : "";
  if (*flag == '\0') return;
  throw Error(Fault::kUsage,
              "{}: has no meaning with --ckpt-format torch_dist, whose tensors are whole and are "
              "loaded under any layout; leave one of the flags out",
              flag);
}

// What AscendSpeed's converters make of --deepspeed.
void check_deepspeed(const ConvertOptions& options, MegatronLayout& layout,
                     const ModelConfig& model) {
  if (options.core) {
    throw Error(Fault::kUsage,
                "--deepspeed: is for the older names of modules; leave out --use-mcore-models");
  }
  if ((model.encoder || model.encoder_decoder)) {
    throw Error(
        Fault::kUsage,
        "--deepspeed: is written of decoders alone, and the model is an encoder ({}); leave "
        "it out",
        model.family);
  }
  if (layout.chunks > 1 || !layout.empty_layers.empty()) {
    throw Error(Fault::kUsage,
                "--deepspeed: leave out --num-layers-per-virtual-pipeline-stage and --noop-layers, "
                "which its checkpoints cannot express");
  }
  if (layout.pipeline > 1 && !is_deepspeed_pipeline(model)) {
    throw Error(Fault::kUsage,
                "--deepspeed: got {} pipeline ranks, but only Bloom is divided into stages there; "
                "leave out --target-pipeline-parallel-size",
                layout.pipeline);
  }
  layout.head_copy = false;
}

}  // namespace

// The layers of Megatron-core are its own by default, but of torch_dist, and with latent attention,
// which its own cannot compute, the gated delta rule or Mamba-2, those of Transformer Engine.
MegatronTree megatron_tree(const ConvertOptions& options, const ModelConfig& model) {
  if (!options.core && !options.is_torch_dist()) return MegatronTree::kLegacy;
  const bool engine = options.is_torch_dist() || model.latent || model.delta || model.state_space;
  const char* usual = engine ? "transformer_engine" : "local";
  const std::string layers = options.core_layers.empty() ? usual : options.core_layers;
  if (options.is_mindspeed())
    return model.mtp_layers > 0 ? MegatronTree::kMindSpeed : MegatronTree::kCore;
  return layers == "local" ? MegatronTree::kCore : MegatronTree::kTransformer;
}

MegatronLayout megatron_layout(const ConvertOptions& options, const OpenedModel& from) {
  const ModelConfig& model = from.model;
  check_range("--target-tensor-parallel-size", options.tensor.value_or(1), 1, kMostRanks);
  check_range("--target-pipeline-parallel-size", options.pipeline.value_or(1), 1, kMostRanks);
  check_range("--target-expert-parallel-size", options.expert.value_or(1), 1, kMostRanks);
  MegatronLayout layout{.tensor = static_cast<int>(options.tensor.value_or(1)),
                        .pipeline = static_cast<int>(options.pipeline.value_or(1)),
                        .expert = static_cast<int>(options.expert.value_or(1)),
                        // Megatron-core has biases of experts only where these are whole.
                        .expert_tensor = model.experts && model.biases ? 1 : 0,
                        .fused_mlp = !options.apart_mlp,
                        .split_latents = megatron_tree(options, model) == MegatronTree::kCore,
                        .joined_latents = options.is_mindspeed(),
                        .apart_heads = options.apart_heads,
                        .stage_layers = options.stage_layers,
                        .empty_layers = options.empty_layers};
  check_range("--added-token-num", options.added_tokens, 0, kLargestSize);
  const std::int64_t multiple = options.vocabulary_multiple.value_or(kUsualMultiple);
  check_range("--make-vocab-size-divisible-by", multiple, 1, kLargestSize);
  layout.padded_vocabulary =
      megatron_padded_vocabulary(model.vocabulary + options.added_tokens, multiple, layout.tensor);
  if (options.is_torch_dist()) check_torch_dist(options, from);
  const std::int64_t stage = options.layers_of_virtual_stage;
  if (stage != 0) {
    const std::int64_t own =
        (megatron_layer_count(model) + std::ssize(layout.empty_layers)) / layout.pipeline;
    if (stage < 0 || own % stage != 0) {
      throw Error(
          Fault::kUsage,
          "--num-layers-per-virtual-pipeline-stage: got {}, wanted a divisor of the {} layers "
          "of each pipeline rank",
          stage, own);
    }
    layout.chunks = static_cast<int>(own / stage);
  }
  if (!options.core_layers.empty() && !options.core && !options.is_torch_dist()) {
    throw Error(Fault::kUsage,
                "--transformer-impl: is for Megatron-core's modules; give --use-mcore-models too");
  }
  if ((model.delta || model.state_space) && options.core_layers == "local") {
    throw Error(Fault::kUsage,
                "--transformer-impl: got local, wanted transformer_engine: Megatron-core has {} in "
                "layers of Transformer Engine alone",
                model.delta ? "the gated delta rule" : "Mamba-2");
  }
  if (options.is_mindspeed() && (!model.latent || options.is_torch_dist())) {
    throw Error(Fault::kUsage,
                "--transformer-impl: got mindspeed, which names the tensors of latent attention in "
                "files of ranks; wanted local or transformer_engine");
  }
  if (options.apart_heads && !options.is_mindspeed())
    throw Error(Fault::kUsage, "--mla-mm-split: give --transformer-impl mindspeed too");
  if (stage != 0 && !layout.stage_layers.empty()) {
    throw Error(Fault::kUsage,
                "--num-layer-list: has no virtual stages; leave out "
                "--num-layers-per-virtual-pipeline-stage");
  }
  if (options.apart_mlp && options.core) {
    throw Error(Fault::kUsage,
                "--no-merge-mlp: Megatron-core (--use-mcore-models) has gate and up as one tensor; "
                "leave one of the flags out");
  }
  if (options.deepspeed) check_deepspeed(options, layout, model);
  layout.check(model);
  return layout;
}

}  // namespace piton
