// What a checkpoint says of the run that wrote it.
#pragma once

#include <filesystem>

#include "train/pretrain_options.h"

namespace piton {

// The options a checkpoint was trained with; its tokenizer is the run's copy where there is one.
// Throws Error(kData) where its config.toml is not what was saved.
PretrainOptions stored_options(const std::filesystem::path& checkpoint);

}  // namespace piton
