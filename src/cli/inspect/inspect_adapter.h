// piton inspect for adapters of PEFT, and for those in GGUF files.
#pragma once

#include <filesystem>

namespace piton::cli {

// Prints rank, alpha, targets, base and tensors. Throws Error(kData) for one that cannot be read.
void print_adapter(const std::filesystem::path& folder, bool json);
void print_gguf_adapter(const std::filesystem::path& file, bool json);

}  // namespace piton::cli
