#include "cli/commands/adapter_choices.h"

#include <set>

#include "base/error.h"

namespace piton::cli {

AdapterFiles AdapterChoices::files(const ModelToLoad& model, const std::string& name) const {
  AdapterFiles files(model.lora_load);
  std::set<std::string> names{name};
  for (const std::string& one : lora_modules) {
    const std::size_t end = one.find('=');
    if (end == 0 || end == std::string::npos || end + 1 == one.size())
      throw Error(Fault::kUsage, "--lora-modules: got {:?}, wanted NAME=FOLDER", one);
    files.choices.emplace_back(one.substr(0, end), one.substr(end + 1));
    const std::string& adapter = files.choices.back().first;
    if (names.insert(adapter).second) continue;
    throw Error(Fault::kUsage, "--lora-modules: two models have the name {}; give each another one",
                adapter);
  }
  if (!lora_modules.empty() && !model.lora_load.empty()) {
    throw Error(Fault::kUsage,
                "--lora-load, --lora-modules: an adapter of every text and adapters to choose "
                "from; give one of them");
  }
  return files;
}

}  // namespace piton::cli
