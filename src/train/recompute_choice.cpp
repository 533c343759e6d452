#include "train/recompute_choice.h"

#include <sstream>

namespace piton {

std::string flags_of(const RecomputeRules& rules) {
  std::string flags;
  const auto add = [&](const std::string& words) { flags += (flags.empty() ? "" : " ") + words; };
  if (rules.granularity == RecomputeGranularity::kNone) return "--recompute-granularity none";
  const bool full = rules.granularity == RecomputeGranularity::kFull;
  add(full ? "--recompute-granularity full" : "--recompute-granularity selective");
  if (full && !rules.layers_of_stage.empty()) {
    add(fmt::format("--recompute-method custom --recomputation-layer-num {}",
                    fmt::join(rules.layers_of_stage, " ")));
  } else if (full) {
    add(fmt::format("--recompute-method {} --recompute-num-layers {}",
                    rules.block ? "block" : "uniform", rules.layers));
  }
  const RecomputedParts parts = rules.parts_again();
  if (parts.any()) {
    add("--recompute-modules");
    if (parts.attention) add("core_attn");
    if (parts.norms) add("layernorm");
    if (parts.activation) add("activation");
    if (parts.mlp) add("mlp");
  }
  return flags;
}

std::string encode(const RecomputeChoice& choice) {
  const RecomputeRules& rules = choice.rules;
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {}", static_cast<int>(rules.granularity), int{rules.block},
                  rules.layers, int{rules.parts.attention}, int{rules.parts.norms},
                  int{rules.parts.activation}, int{rules.parts.mlp}, rules.layers_of_stage.size());
  for (const std::int64_t layers : rules.layers_of_stage) text += fmt::format(" {}", layers);
  return text + "\n" + choice.why;
}

RecomputeChoice decode_choice(const std::string& text) {
  RecomputeChoice choice;
  RecomputeRules& rules = choice.rules;
  std::istringstream words(text.substr(0, text.find('\n')));
  int granularity = 0;
  std::size_t stages = 0;
  words >> granularity >> rules.block >> rules.layers >> rules.parts.attention >>
      rules.parts.norms >> rules.parts.activation >> rules.parts.mlp >> stages;
  rules.granularity = static_cast<RecomputeGranularity>(granularity);
  rules.layers_of_stage.resize(stages);
  for (std::int64_t& layers : rules.layers_of_stage) words >> layers;
  PITON_ASSERT(!words.fail(), "{}", text);
  choice.why = text.substr(text.find('\n') + 1);
  return choice;
}

}  // namespace piton
