#include "cli/inspect/inspect_adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string>

#include "adapters/peft_summary.h"
#include "base/json.h"
#include "cli/terminal/print.h"
#include "model_files/gguf_adapter.h"

namespace piton::cli {
namespace {

std::string adapter_json(const PeftSummary& adapter) {
  const PeftConfig& config = adapter.config;
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const PeftTensor& tensor : adapter.tensors)
    tensors.push_back({{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}});
  return nlohmann::ordered_json{
             {"format", "peft"},
             {"base", adapter.base},
             {"rank", config.rank},
             {"alpha", config.alpha},
             {"rank_pattern", std::map(config.ranks.begin(), config.ranks.end())},
             {"alpha_pattern", std::map(config.alphas.begin(), config.alphas.end())},
             {"use_rslora", config.rank_stabilized},
             {"use_dora", config.magnitudes},
             {"targets", adapter.targets},
             {"modules", adapter.modules},
             {"trained", adapter.trained},
             {"parameters", adapter.parameters},
             {"tensors", tensors}}
             .dump() +
         "\n";
}

std::string gguf_adapter_json(const GgufAdapterSummary& adapter) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const GgufTensor& tensor : adapter.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", std::string(name(tensor.type))},
                       {"shape", tensor.shape}});
  }
  return nlohmann::ordered_json{{"format", "gguf-lora"},
                                {"name", adapter.name},
                                {"architecture", adapter.architecture},
                                {"alpha", adapter.alpha},
                                {"ranks", adapter.ranks},
                                {"targets", adapter.targets},
                                {"modules", adapter.modules},
                                {"parameters", adapter.parameters},
                                {"tensors", tensors}}
             .dump() +
         "\n";
}

// "rank 4 (8 of q_proj)"
template <typename Exceptions, typename Value>
std::string with_exceptions(const char* what, Value value, const Exceptions& exceptions) {
  std::string others;
  for (const auto& [pattern, other] : exceptions)
    others += fmt::format("{}{} of {}", others.empty() ? "" : ", ", other, pattern);
  return fmt::format("{} {}{}", what, value, others.empty() ? "" : " (" + others + ")");
}

}  // namespace

void print_adapter(const std::filesystem::path& folder, bool json) {
  const PeftSummary adapter = peft_summary(folder);
  if (json) return print(adapter_json(adapter));
  const PeftConfig& config = adapter.config;
  std::string text = fmt::format(
      "{}: adapter of PEFT, {}, {}{}{}\n"
      "base     {}\n"
      "targets  {}, {} module{}\n",
      folder.string(), with_exceptions("rank", config.rank, config.ranks),
      with_exceptions("alpha", config.alpha, config.alphas),
      config.rank_stabilized ? ", divided by the root of the rank" : "",
      config.magnitudes ? ", with magnitudes (DoRA)" : "",
      adapter.base.empty() ? "not named" : adapter.base, fmt::join(adapter.targets, " "),
      adapter.modules, adapter.modules == 1 ? "" : "s");
  if (!adapter.trained.empty())
    text += fmt::format("in full  {}\n", fmt::join(adapter.trained, " "));
  text += fmt::format("{} parameters\n", adapter.parameters);
  for (const PeftTensor& tensor : adapter.tensors)
    text += fmt::format("  {:76} {:5} [{}]\n", tensor.name, tensor.dtype,
                        fmt::join(tensor.shape, ", "));
  print(text);
}

void print_gguf_adapter(const std::filesystem::path& file, bool json) {
  const GgufAdapterSummary adapter = gguf_adapter_summary(file);
  if (json) return print(gguf_adapter_json(adapter));
  std::string text = fmt::format(
      "{}: adapter in a GGUF file, rank {}, alpha {}\n"
      "base     of the architecture {}\n"
      "targets  {}, {} module{}\n"
      "{} parameters\n",
      file.string(), fmt::join(adapter.ranks, " and "), adapter.alpha, adapter.architecture,
      fmt::join(adapter.targets, " "), adapter.modules, adapter.modules == 1 ? "" : "s",
      adapter.parameters);
  for (const GgufTensor& tensor : adapter.tensors)
    text += fmt::format("  {:54} {:5} [{}]\n", tensor.name, name(tensor.type),
                        fmt::join(tensor.shape, ", "));
  print(text);
}

}  // namespace piton::cli
