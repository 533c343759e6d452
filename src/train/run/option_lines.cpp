#include "train/run/option_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace piton {
namespace {

constexpr const char* kByRule = "options by rule";
constexpr const char* kOfCheckpoint = "options of the checkpoint";

using Values = std::map<std::string, std::string>;

Values values_of(PretrainOptions options) {
  OptionSet set;
  options.add_to(set);
  Values values;
  for (const auto& [name, value] : set.values()) values[name] = value;
  return values;
}

// Options by the heading of their line, in the order in which headings came first.
struct Lines {
  std::vector<std::pair<std::string, std::vector<std::string>>> all;

  void add(const std::string& heading, const std::string& name, const std::string& value) {
    auto at = std::find_if(all.begin(), all.end(),
                           [&](const auto& line) { return line.first == heading; });
    if (at == all.end()) at = all.insert(at, {heading, {}});
    at->second.push_back(fmt::format("{} = {}", name, value));
  }
};

}  // namespace

std::vector<std::string> option_lines(const PretrainOptions& given, PretrainOptions settled) {
  OptionSet set;
  settled.add_to(set);
  const Values defaults = values_of({});
  const Values before = values_of(given);
  Values now;
  Lines lines;
  for (const auto& [name, value] : set.values()) now[name] = value;
  const auto is_of_checkpoint = [&](const std::string& name) {
    const bool scheduled = set.resume_of(name) == Resume::kSchedule;
    return settled.loop.use_checkpoint_scheduler && scheduled && now[name] != before.at(name);
  };
  Values said;
  for (const ChangedOption& option : given.changed) {
    const bool replaced = now.contains(option.name) && is_of_checkpoint(option.name);
    if (replaced) continue;
    lines.add(fmt::format("options of {}", option.origin), option.name, option.value);
    said[option.name] = option.value;
  }
  for (const auto& [name, value] : set.values()) {
    if (said.contains(name) || value.empty() || value == defaults.at(name)) continue;
    lines.add(is_of_checkpoint(name) ? kOfCheckpoint : kByRule, name, value);
  }
  std::vector<std::string> text;
  for (const auto& [heading, options] : lines.all) {
    text.push_back(fmt::format("{}: {}", heading, fmt::join(options, ", ")));
  }
  return text;
}

std::vector<std::string> lines_without_effect(const PretrainOptions& options,
                                              const ModelConfig& model) {
  std::vector<std::string> lines;
  const auto add = [&](bool given, std::string_view flag, std::string_view why) {
    if (given) lines.push_back(fmt::format("--{}: has no effect: {}", flag, why));
  };
  const LoopOptions& loop = options.loop;
  const ModelOptions& flags = options.model;
  constexpr std::string_view kNotSaved = "nothing is saved, since no --save is given";
  add(loop.save.empty() && loop.save_interval > 0, "save-interval", kNotSaved);
  add(loop.save.empty() && loop.save_interval_minutes, "save-interval-in-mins", kNotSaved);
  add(loop.save.empty() && loop.no_save_optim, "no-save-optim", kNotSaved);
  add(options.parallel.linears.sequence_parallel && options.parallel.tensor == 1,
      "sequence-parallel", "--tensor-model-parallel-size is 1");
  add(flags.mlp.exact_gelu && model.activation != ActivationKind::kGeluErf, "no-bias-gelu-fusion",
      "it is of a GELU without a gate, and this model has another activation");
  add(flags.rotary.base && model.positions != PositionKind::kRotary, "rotary-base",
      "this model has no rotary positions");
  return lines;
}

}  // namespace piton
