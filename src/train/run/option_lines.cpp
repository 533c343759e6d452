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

}  // namespace piton
