// Opens the files of a Megatron checkpoint in whichever layout they have.
#pragma once

#include <filesystem>
#include <memory>

#include "megatron/format/megatron_files.h"

namespace piton {

bool has_megatron_files(const std::filesystem::path& folder);

// Null where there is none. Throws Error(kData) for a damaged one.
std::unique_ptr<MegatronFiles> open_megatron_files(const std::filesystem::path& folder);

}  // namespace piton
