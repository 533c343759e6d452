// The model that a command uses: --load and --lora-load.
#pragma once

#include <filesystem>
#include <string>

#include "base/options/options.h"

namespace piton::cli {

struct ModelToLoad {
  std::string load;
  std::string lora_load;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"load",
             "run, checkpoint, Hugging Face or Megatron folder, or GGUF file of the model",
             {.placeholder = "DIR"}},
      load);
    v(Option{"lora-load",
             "adapters for the model: folder of a run that trained them, or of an adapter of PEFT",
             {.placeholder = "DIR"}},
      lora_load);
  }
  // That of the folder or file.
  std::string name() const {
    std::filesystem::path path = std::filesystem::absolute(load).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    return path.filename().string();
  }
};

}  // namespace piton::cli
