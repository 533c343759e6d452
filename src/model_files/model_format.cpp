#include "model_files/model_format.h"

#include <system_error>

#include "checkpoint/manifest.h"
#include "gguf/gguf_file.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"

namespace piton {

std::string_view name(ModelFormat format) {
  switch (format) {
    case ModelFormat::kPiton:
      return "piton";
    case ModelFormat::kHuggingFace:
      return "hf";
    case ModelFormat::kMegatron:
      return "mg";
    case ModelFormat::kGguf:
      return "gguf";
  }
  return "";
}

ModelFormat model_format_of(const std::filesystem::path& path) {
  if (is_gguf_file(path)) return ModelFormat::kGguf;
  if (is_huggingface_folder(path)) return ModelFormat::kHuggingFace;
  return is_megatron_folder(path) ? ModelFormat::kMegatron : ModelFormat::kPiton;
}

bool holds_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / kManifestName, ignored) ||
         std::filesystem::exists(path / kTrackerName, ignored);
}

}  // namespace piton
