#include "train/run/model_format.h"

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

}  // namespace piton
