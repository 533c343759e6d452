#include "base/options/other_names.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace piton {
namespace {

struct OtherName {
  std::string_view name;
  std::array<std::string_view, 2> here;  // "" where there is no second one
};

constexpr OtherName kOtherNames[] = {
    // Transformers, PEFT, LlamaFactory, Axolotl
    {"model-name-or-path", {"load", ""}},
    {"adapter-name-or-path", {"lora-load", ""}},
    {"output-dir", {"save", ""}},
    {"dataset", {"data-path", ""}},
    {"datasets", {"data-path", ""}},
    {"train-file", {"data-path", ""}},
    {"validation-file", {"valid-data-path", ""}},
    {"template", {"prompt-type", "chat-template"}},
    // Piton's own: corpora are made with one, answers are written with the other.
    {"chat-template", {"prompt-type", ""}},
    {"prompt-type", {"chat-template", ""}},
    {"cutoff-len", {"seq-length", ""}},
    {"max-length", {"seq-length", "max-new-tokens"}},
    {"max-seq-length", {"seq-length", ""}},
    {"sequence-len", {"seq-length", ""}},
    {"sample-packing", {"pack", ""}},
    {"max-steps", {"train-iters", ""}},
    {"learning-rate", {"lr", ""}},
    {"lr-scheduler-type", {"lr-decay-style", ""}},
    {"warmup-steps", {"lr-warmup-iters", ""}},
    {"warmup-ratio", {"lr-warmup-fraction", ""}},
    {"per-device-train-batch-size", {"micro-batch-size", ""}},
    {"gradient-accumulation-steps", {"global-batch-size", ""}},
    {"max-grad-norm", {"clip-grad", ""}},
    {"save-steps", {"save-interval", ""}},
    {"logging-steps", {"log-interval", ""}},
    {"adapter", {"lora-target-modules", ""}},
    {"lora-rank", {"lora-r", ""}},
    {"lora-target", {"lora-target-modules", ""}},
    {"target-modules", {"lora-target-modules", ""}},
    {"additional-target", {"lora-modules-to-save", ""}},
    {"modules-to-save", {"lora-modules-to-save", ""}},
    {"pref-beta", {"beta", ""}},
    {"pref-loss", {"stage", ""}},
    {"load-in-4bit", {"qlora", "quantize"}},
    {"epochs", {"num-train-epochs", ""}},
    {"train-data", {"data-path", ""}},
    {"valid-data", {"valid-data-path", ""}},
    {"norm-eps", {"norm-epsilon", ""}},
    {"rms-norm-eps", {"norm-epsilon", ""}},
    {"num-shared-experts", {"n-shared-experts", ""}},
    // lm-evaluation-harness
    {"tasks", {"task", ""}},
    {"model-args", {"load", ""}},
    {"output-path", {"save-results", ""}},
    // vLLM, llama.cpp
    {"tensor-parallel-size", {"tensor-model-parallel-size", ""}},
    {"pipeline-parallel-size", {"pipeline-model-parallel-size", ""}},
    {"max-tokens", {"max-new-tokens", ""}},
    {"n-predict", {"max-new-tokens", ""}},
    {"quantization", {"quantize", ""}},
    {"model", {"load", ""}},
    {"lora", {"lora-load", ""}},
    {"outfile", {"save", ""}},
    {"repeat-penalty", {"repetition-penalty", ""}},
    {"grammar", {"regex", "json-schema"}},
    {"draft", {"draft-tokens", ""}},
};

}  // namespace

std::string with_dashes(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::span<const std::string_view> names_here(std::string_view name) {
  const auto* found = std::ranges::find(kOtherNames, with_dashes(name), &OtherName::name);
  if (found == std::end(kOtherNames)) return {};
  return std::span(found->here).first(found->here[1].empty() ? 1 : 2);
}

std::string with_typed_names(std::string text, const std::map<std::string, std::string>& typed) {
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (const auto& [name, as_typed] : typed) {
    const std::string flag = "--" + name;
    for (std::size_t at = text.find(flag); at != text.npos; at = text.find(flag, at)) {
      const std::size_t end = at + flag.size();
      const bool longer = end < text.size() && (is_of_name(text[end]) || text[end] == '-');
      const bool inside = at > 0 && (is_of_name(text[at - 1]) || text[at - 1] == '-');
      const std::string shown = longer || inside ? flag : "--" + as_typed;
      text.replace(at, flag.size(), shown);
      at += shown.size();
    }
  }
  return text;
}

}  // namespace piton
