// Links in folders that others made: a model that was passed on must not read other files of the
// one who uses it.
#pragma once

#include <filesystem>

namespace piton {

// True if the normal absolute `path` is in `folder`.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder);

// Throws Error(kData) if `file`, a path that begins with `folder`, is elsewhere by links on its
// way.
void refuse_link_out(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace piton
