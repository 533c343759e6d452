// Which program's model a path holds. Everything that opens models asks here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace piton {

enum class ModelFormat : std::uint8_t { kPiton, kHuggingFace, kMegatron, kGguf };

// "piton", "hf", "mg", "gguf": as options spell it.
std::string_view name(ModelFormat format);

// By names of files, without opening a model. kPiton where it is no other program's: a run, one of
// its checkpoints, or nothing.
ModelFormat model_format_of(const std::filesystem::path& path);

// Whether `path` is a checkpoint of Piton, or the folder of a run whose tracker names one.
bool holds_checkpoint(const std::filesystem::path& path);

}  // namespace piton
