// piton inspect of other programs' model folders.
#pragma once

#include <filesystem>

namespace piton::cli {

// A Hugging Face folder: its model, files, tensors, and what a user should know of them. Throws
// Error(kData) for one that could not be loaded.
void print_huggingface(const std::filesystem::path& folder, bool json);

}  // namespace piton::cli
