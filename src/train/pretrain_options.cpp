#include "train/pretrain_options.h"

namespace piton {

// Here and not in the header: every option becomes code of its own, which takes seconds to compile.
void PretrainOptions::add_to(OptionSet& options) {
  options.add("Model", model);
  options.add("Training", loop);
  options.add("Parallelism", parallel);
  options.add("Learning rate", learning_rate);
  options.add("Optimizer", optimizer);
  options.add("Data", data);
  options.add("Tokenizer", tokenizer);
}

}  // namespace piton
