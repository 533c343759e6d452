// The adapters of --lora-modules, one of which a request or a prompt names as its model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/model.h"
#include "base/options/options.h"
#include "cli/commands/model_to_load.h"

namespace piton::cli {

struct AdapterChoices {
  std::vector<std::string> lora_modules;

  // `who`: chooses, and where.
  template <typename Visitor>
  void visit(Visitor&& v, const char* who) {
    v(Option{"lora-modules",
             std::string("adapters that ") + who +
                 ": folders of runs that trained them, or of adapters of PEFT, or GGUF files",
             {.aliases = {"adapter"}, .placeholder = "NAME=DIR"}},
      lora_modules);
  }

  // The adapters to load with `model`, which requests call `name`. Throws Error(kUsage) for what is
  // not NAME=DIR, for a name that two have, and for --lora-load in addition to adapters to choose.
  AdapterFiles files(const ModelToLoad& model, const std::string& name) const;
};

}  // namespace piton::cli
