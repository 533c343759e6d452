#include "adapters/peft_summary.h"

#include <functional>
#include <numeric>
#include <set>

#include "adapters/peft_source.h"
#include "huggingface/files/config_file.h"

namespace piton {
namespace {

std::vector<std::string> listed_names(const std::set<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

PeftSummary peft_summary(const std::filesystem::path& folder) {
  const std::string where = (folder / kPeftConfigName).string();
  const std::string text = read_peft_config(folder);
  PeftSummary summary{.config = parse_peft_config(text, where)};
  summary.base = HfConfig(text, where).word("base_model_name_or_path", "");
  std::set<std::string> modules, targets, trained;
  const HfTensorFiles files(folder, peft_weights_name(folder));
  for (const auto& [name, tensor] : files.tensors()) {
    if (const auto module = peft_module_of(name)) {
      modules.insert(*module);
      targets.insert(module->substr(module->rfind('.') + 1));
    } else {
      const std::string plain = without_peft_prefix(name);
      trained.insert(plain.substr(0, plain.rfind('.')));
    }
    summary.parameters += std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1},
                                          std::multiplies<>());
    summary.tensors.push_back({name, tensor.dtype, tensor.shape});
  }
  // Modules around parameters have the names of the latter.
  for (const std::string& parameter : summary.config.parameters) {
    if (parameter.ends_with(".weight")) continue;
    targets.insert(parameter);
    targets.erase("base_layer");
    targets.erase(parameter.substr(0, parameter.rfind('.')));
  }
  summary.modules = std::ssize(modules);
  summary.targets = listed_names(targets);
  summary.trained = listed_names(trained);
  return summary;
}

}  // namespace piton
