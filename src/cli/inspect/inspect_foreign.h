// piton inspect for model folders of other programs.
#pragma once

#include <filesystem>

#include "model/config.h"

namespace piton::cli {

// Each prints a model, its files, tensors, and what a user should know of them. Throws Error(kData)
// for one that could not be loaded.
void print_huggingface(const std::filesystem::path& folder, bool json);
void print_gguf(const std::filesystem::path& file, bool json);
// `options`: the model's, for a checkpoint that keeps no arguments.
void print_megatron(const std::filesystem::path& folder, const ModelOptions& options, bool json);

}  // namespace piton::cli
