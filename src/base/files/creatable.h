// Whether an output can be written, before the work that it needs.
#pragma once

#include <filesystem>

namespace piton {

// Throws Error(kData) if `file` could not be created, by the rights of its folder, or of the
// nearest one that exists. Writes nothing.
void check_creatable(const std::filesystem::path& file);

}  // namespace piton
