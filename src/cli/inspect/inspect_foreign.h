// piton inspect for models of other programs.
#pragma once

#include <filesystem>
#include <string>

#include "model/config.h"

namespace piton::cli {

// Prints a model in the format of another program, its files, tensors, and what a user should know
// of them. `options`: the model's, for a checkpoint of Megatron that keeps no arguments. Throws
// Error(kData) for one that could not be loaded.
void print_foreign_model(const std::filesystem::path& path, const ModelOptions& options, bool json);

// The hash of its weights: that of a checkpoint of Piton with the same tensors.
std::string foreign_weights_hash(const std::filesystem::path& path, const ModelOptions& options);

}  // namespace piton::cli
