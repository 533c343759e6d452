// What `piton convert` can be told: Megatron's, MindSpeed's and AscendSpeed's converters have other
// names for the same, which are aliases here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"
#include "model/config.h"

namespace piton {

struct ConvertOptions {
  std::string load;
  std::string load_model_type;
  std::string save;
  std::string save_model_type;
  std::string dtype;
  std::int64_t max_shard_bytes = 5'000'000'000;
  bool average = false;
  bool no_verify = false;
  // Of --to mg.
  int tensor = 1;
  int pipeline = 1;
  std::int64_t layers_of_virtual_stage = 0;
  std::int64_t vocabulary_multiple = 128;
  bool core = false;
  std::string core_layers = "local";
  // Of a --load of Megatron that does not say so itself.
  ModelOptions model;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint, Hugging Face or Megatron folder to convert",
             {.aliases = {"load-dir", "input-model-dir"}, .placeholder = "DIR"}},
      load);
    v(Option{"load-model-type",
             "what --load has to be (default: whatever it is)",
             {.choices = {"piton", "hf", "mg"}}},
      load_model_type);
    v(Option{"save",
             "folder to make",
             {.aliases = {"save-dir", "output-model-dir"}, .placeholder = "DIR"}},
      save);
    v(Option{"to",
             "what to make (default: hf from a checkpoint of Piton, piton from all others)",
             {.aliases = {"save-model-type"}, .choices = {"piton", "hf", "mg"}}},
      save_model_type);
    v(Option{"params-dtype",
             "type of every weight (default: each as it is)",
             {.choices = {"fp32", "bf16", "fp16"}}},
      dtype);
    v(Option{"average", "the moving average of a checkpoint's weights (pretrain --ema-decay)"},
      average);
    v(Option{"max-shard-size", "largest file of weights, in bytes (5G)", {.placeholder = "BYTES"}},
      max_shard_bytes);
    v(Option{"target-tensor-parallel-size",
             "mg: ranks that each layer is divided over",
             {.aliases = {"tensor-model-parallel-size", "tgt-tensor-model-parallel-size"}}},
      tensor);
    v(Option{"target-pipeline-parallel-size",
             "mg: ranks that the layers are divided over",
             {.aliases = {"pipeline-model-parallel-size", "tgt-pipeline-model-parallel-size"}}},
      pipeline);
    v(Option{"num-layers-per-virtual-pipeline-stage",
             "mg: layers of a virtual stage (0: one stage a rank)",
             {.placeholder = "N"}},
      layers_of_virtual_stage);
    v(Option{"make-vocab-size-divisible-by",
             "mg: rows of the table on each rank are a multiple of this",
             {.placeholder = "N"}},
      vocabulary_multiple);
    v(Option{"use-mcore-models", "mg: the module tree of Megatron-core, not the older one"}, core);
    v(Option{"transformer-impl",
             "mg: the layers of --use-mcore-models",
             {.choices = {"local", "transformer_engine"}}},
      core_layers);
    v(Option{"no-verify", "do not compare the result with the source"}, no_verify);
  }
};

}  // namespace piton
