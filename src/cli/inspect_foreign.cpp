#include "cli/inspect_foreign.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "huggingface/hf_source.h"

namespace piton::cli {

void print_huggingface(const std::filesystem::path& folder, bool json) {
  const HfSource source(folder);
  const ModelConfig& model = source.model();
  const std::string type = source.config().word("model_type");
  std::set<std::string> types;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  std::string lines;
  for (const auto& [name, tensor] : source.files().tensors()) {
    types.insert(tensor.dtype);
    tensors.push_back({{"name", name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
    lines += fmt::format("  {:54} {:5} [{}]\n", name, tensor.dtype, fmt::join(tensor.shape, ", "));
  }
  std::string text;
  if (json) {
    text = nlohmann::ordered_json{{"format", "huggingface"},
                                  {"model_type", type},
                                  {"parameters", model.parameters()},
                                  {"layers", model.layers},
                                  {"hidden", model.hidden},
                                  {"heads", model.heads},
                                  {"groups", model.groups},
                                  {"vocabulary", model.vocabulary},
                                  {"max_positions", model.max_positions},
                                  {"tied", model.tied},
                                  {"files", source.files().names()},
                                  {"notes", source.notes()},
                                  {"tensors", tensors}}
               .dump() +
           "\n";
  } else {
    text = fmt::format(
        "{}: Hugging Face, {}, {} in {} file{}\n{} parameters, {} layers of width {}, {} heads ({} "
        "groups) of {}, vocabulary {}, {} positions, {}\n",
        folder.string(), type, fmt::join(types, " and "), source.files().names().size(),
        source.files().names().size() == 1 ? "" : "s", model.parameters(), model.layers,
        model.hidden, model.heads, model.groups, model.head_size, model.vocabulary,
        model.max_positions, model.tied ? "tied head" : "head of its own");
    for (const std::string& note : source.notes()) text += note + "\n";
    text += lines;
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace piton::cli
