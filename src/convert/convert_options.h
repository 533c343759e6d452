// Options of `piton convert`. Megatron's, MindSpeed's and AscendSpeed's converters have other
// names for the same, which are aliases here (and in cli/compatibility/converter_flags.h, for what
// has no meaning).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "codes/integer_codes.h"
#include "model/config.h"
#include "text/files/tokenizer_options.h"

namespace piton {

// What `piton quantize` makes of the matrices of the layers in a Hugging Face folder.
struct CodedWeights {
  IntegerFormat format;  // `scale` follows from the model
  bool gptq = false;     // codes/gptq.h; else each weight is rounded to the nearest code
  // Of GPTQ: a text, or JSON lines with "text", cut into samples of `length` tokens.
  std::string calibration;
  std::int64_t samples = 128;  // at most
  std::int64_t length = 512;
  double damping = 0.01;
  TokenizerOptions tokenizer;  // empty: that of the model
};

struct ConvertOptions {
  std::string load;
  std::string load_model_type;
  std::string save;
  std::string lora_load;
  std::string save_model_type;
  std::string dtype;
  std::string outtype;
  std::int64_t max_shard_bytes = 5'000'000'000;
  bool average = false;
  bool tokenizer_ids = false;
  bool no_verify = false;
  // Of --to mg.
  std::string checkpoint_format;
  std::optional<std::int64_t> tensor;    // ranks; default 1
  std::optional<std::int64_t> pipeline;  // the same
  std::optional<std::int64_t> expert;    // the same
  std::int64_t layers_of_virtual_stage = 0;
  std::optional<std::int64_t> vocabulary_multiple;  // default 128
  bool core = false;
  std::string core_layers;  // default local
  bool apart_mlp = false;
  bool apart_heads = false;
  bool arguments = false;
  bool deepspeed = false;
  std::vector<std::int64_t> stage_layers;
  std::vector<std::int64_t> empty_layers;
  std::int64_t added_tokens = 0;
  // What the user expects of the source: compared with it.
  std::string size;
  std::optional<std::int64_t> source_tensor;
  std::optional<std::int64_t> source_pipeline;
  std::optional<std::int64_t> source_expert;
  std::optional<double> lora_rank;
  std::optional<double> lora_alpha;
  // Of a --load of Megatron without these facts.
  ModelOptions model;
  std::optional<CodedWeights> coded;  // no flag; only to Hugging Face folders

  // A flag that says how --to mg divides a model was given; "" where none was.
  std::string megatron_flag() const {
    return !checkpoint_format.empty()     ? "--ckpt-format"
           : tensor                       ? "--target-tensor-parallel-size"
           : pipeline                     ? "--target-pipeline-parallel-size"
           : expert                       ? "--target-expert-parallel-size"
           : layers_of_virtual_stage != 0 ? "--num-layers-per-virtual-pipeline-stage"
           : !stage_layers.empty()        ? "--num-layer-list"
           : !empty_layers.empty()        ? "--noop-layers"
           : core                         ? "--use-mcore-models"
           : vocabulary_multiple          ? "--make-vocab-size-divisible-by"
           : !core_layers.empty()         ? "--transformer-impl"
           : apart_mlp                    ? "--no-merge-mlp"
           : apart_heads                  ? "--mla-mm-split"
           : arguments                    ? "--megatron-args"
           : deepspeed                    ? "--deepspeed"
           : added_tokens != 0            ? "--added-token-num"
                                          : "";
  }

  bool is_mindspeed() const { return core_layers == "mindspeed"; }
  bool is_torch_dist() const { return checkpoint_format == "torch_dist"; }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint, Hugging Face or Megatron folder, or GGUF file to convert",
             {.aliases = {"load-dir", "input-model-dir"}, .placeholder = "DIR"}},
      load);
    v(Option{"lora-load",
             "adapters to merge into the weights: folder of a run that trained them, or of an "
             "adapter of PEFT, or GGUF file; with --to peft or gguf-lora they are written alone",
             {.placeholder = "DIR"}},
      lora_load);
    v(Option{"load-model-type",
             "format that --load must have (default: any)",
             {.choices = {"piton", "hf", "mg", "gguf"}}},
      load_model_type);
    v(Option{"save",
             "folder to write, or NAME.gguf",
             {.aliases = {"save-dir", "output-model-dir"}, .placeholder = "DIR"}},
      save);
    v(Option{"to",
             "format to write (default: gguf if --save is NAME.gguf, mg if mg flags are given, hf "
             "from a Piton checkpoint, piton from all others)",
             {.aliases = {"save-model-type"},
              .choices = {"piton", "hf", "mg", "gguf", "peft", "gguf-lora"}}},
      save_model_type);
    v(Option{"params-dtype",
             "dtype of every weight (default: unchanged)",
             {.choices = {"fp32", "bf16", "fp16"}}},
      dtype);
    v(Option{"outtype",
             "gguf: dtype of every matrix (default: unchanged)",
             {.choices = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"}}},
      outtype);
    v(Option{"average", "convert the moving average of the weights (pretrain --ema-decay)"},
      average);
    v(Option{"max-shard-size",
             "largest file of weights in bytes, such as 5GB",
             {.placeholder = "BYTES"}},
      max_shard_bytes);
    v(Option{"tokenizer-special-ids",
             "hf: write the ids of the tokenizer's special tokens into config.json, also where a "
             "run "
             "has another tokenizer than the model that it started from"},
      tokenizer_ids);
    visit_megatron(v);
    v(Option{"type",
             "model size that --load must have",
             {.choices = {"560M", "7B", "7B1", "13B", "30B", "33B", "65B", "70B", "176B"}}},
      size);
    v(Option{"src-tensor-model-parallel-size", "number of tensor ranks that --load must have"},
      source_tensor);
    v(Option{"src-pipeline-model-parallel-size", "number of pipeline ranks that --load must have"},
      source_pipeline);
    v(Option{"src-expert-model-parallel-size", "number of expert ranks that --load must have"},
      source_expert);
    v(Option{"lora-r", "rank that the adapters must have"}, lora_rank);
    v(Option{"lora-alpha", "alpha that the adapters must have"}, lora_alpha);
    v(Option{"no-verify", "do not compare the result with the source"}, no_verify);
  }

 private:
  // Of --to mg.
  template <typename Visitor>
  void visit_megatron(Visitor&& v) {
    v(Option{"ckpt-format",
             "mg: file format: one file per rank (torch, the default), or Megatron-core's "
             "distributed checkpoint, which any layout loads (torch_dist)",
             {.choices = {"torch", "torch_dist"}}},
      checkpoint_format);
    v(Option{"target-tensor-parallel-size",
             "mg: number of ranks that each layer is split over (default: 1)",
             {.aliases = {"tensor-model-parallel-size", "tgt-tensor-model-parallel-size"}}},
      tensor);
    v(Option{"target-pipeline-parallel-size",
             "mg: number of stages that the layers are divided into (default: 1)",
             {.aliases = {"pipeline-model-parallel-size", "tgt-pipeline-model-parallel-size"}}},
      pipeline);
    v(Option{"target-expert-parallel-size",
             "mg: number of ranks that the experts of each layer are divided over (default: 1)",
             {.aliases = {"expert-model-parallel-size"}}},
      expert);
    v(Option{"num-layers-per-virtual-pipeline-stage",
             "mg: number of layers per virtual stage (0: one stage per rank)",
             {.placeholder = "N"}},
      layers_of_virtual_stage);
    v(Option{"make-vocab-size-divisible-by",
             "mg: divisor of the number of embedding rows on each rank (default: 128)",
             {.placeholder = "N"}},
      vocabulary_multiple);
    v(Option{"use-mcore-models", "mg: write the module tree of Megatron-core, not the older one"},
      core);
    v(
        Option{
            "transformer-impl",
            "mg: layer implementation of --use-mcore-models (default: local; with latent attention "
            "transformer_engine); mindspeed: latent attention as MindSpeed-LLM has it",
            {.choices = {"local", "transformer_engine", "mindspeed"}}},
        core_layers);
    v(Option{"mla-mm-split",
             "mg: with --transformer-impl mindspeed: store matrices of keys, of values and of both "
             "kinds of channels apart"},
      apart_heads);
    v(Option{"no-merge-mlp",
             "mg: store gate and up as separate tensors (AscendSpeed without --mlp-layer-fusion)",
             {.negation = "merge-mlp"}},
      apart_mlp);
    v(Option{"num-layer-list",
             "mg: number of layers of each pipeline rank (default: equal numbers)",
             {.aliases = {"partition-layers"}, .placeholder = "N,N,..."}},
      stage_layers);
    v(Option{"noop-layers",
             "mg: positions in the whole model that have no layer, counted from 0",
             {.placeholder = "N,N,..."}},
      empty_layers);
    v(Option{"added-token-num",
             "mg: number of ids beyond the vocabulary that the padded table has room for",
             {.placeholder = "N"}},
      added_tokens);
    v(Option{"megatron-args",
             "mg: also store the arguments as argparse.Namespace, for Megatron's "
             "--use-checkpoint-args; torch.load(weights_only=True) does not load such files"},
      arguments);
    v(Option{"deepspeed",
             "mg: DeepSpeed's files, mp_rank_NN_model_states.pt, as AscendSpeed's converters write "
             "them; stages of Bloom alone"},
      deepspeed);
  }
};

}  // namespace piton
