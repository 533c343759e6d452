// Reads the options of the run that wrote a checkpoint.
#pragma once

#include <filesystem>

#include "train/run/pretrain_options.h"

namespace piton {

// The options that a checkpoint was trained with; its tokenizer is the run's copy if there is one.
// Throws Error(kData) if its config.toml is not what was saved.
PretrainOptions stored_options(const std::filesystem::path& checkpoint);

}  // namespace piton
