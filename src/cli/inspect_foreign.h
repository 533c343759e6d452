// piton inspect for model folders of other programs.
#pragma once

#include <filesystem>

namespace piton::cli {

// A Hugging Face folder: its model, files, tensors, and notes for the user. Throws Error(kData) if
// it cannot be loaded.
void print_huggingface(const std::filesystem::path& folder, bool json);

}  // namespace piton::cli
