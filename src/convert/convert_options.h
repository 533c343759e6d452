// What `piton convert` can be told: Megatron's, MindSpeed's and AscendSpeed's converters have other
// names for the same, which are aliases here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/options.h"

namespace piton {

struct ConvertOptions {
  std::string load;
  std::string load_model_type;
  std::string save;
  std::string save_model_type;
  std::string dtype;
  std::int64_t max_shard_bytes = 5'000'000'000;
  bool no_verify = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint or Hugging Face folder to convert",
             {.aliases = {"load-dir", "input-model-dir"}, .placeholder = "DIR"}},
      load);
    v(Option{"load-model-type",
             "what --load has to be (default: whatever it is)",
             {.choices = {"piton", "hf"}}},
      load_model_type);
    v(Option{"save",
             "folder to make",
             {.aliases = {"save-dir", "output-model-dir"}, .placeholder = "DIR"}},
      save);
    v(Option{"to",
             "what to make (default: hf from a checkpoint of Piton, piton from all others)",
             {.aliases = {"save-model-type"}, .choices = {"piton", "hf"}}},
      save_model_type);
    v(Option{"params-dtype",
             "type of every weight (default: each as it is)",
             {.choices = {"fp32", "bf16", "fp16"}}},
      dtype);
    v(Option{"max-shard-size", "largest file of weights, in bytes (5G)", {.placeholder = "BYTES"}},
      max_shard_bytes);
    v(Option{"no-verify", "do not compare the result with the source"}, no_verify);
  }
};

}  // namespace piton
