#include "train/run/stored_options.h"

#include "checkpoint/manifest.h"
#include "train/run/run_tokenizer.h"

namespace piton {

PretrainOptions stored_options(const std::filesystem::path& checkpoint) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  // The options have a hash like the weights: changed options with the same tensors would be
  // another model.
  set.read_toml_text(read_config(checkpoint, read_manifest(checkpoint)),
                     (checkpoint / kConfigName).string());
  options.tokenizer = kept_tokenizer(options.tokenizer, std::filesystem::absolute(checkpoint));
  return options;
}

}  // namespace piton
