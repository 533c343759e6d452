// Declaring options, reading them from words, and describing them.

#include "base/options.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace piton {
namespace {

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string slug(std::string_view title) {
  std::string name;
  for (const char c : title) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (c >= 'A' && c <= 'Z') {
      name += static_cast<char>(c - 'A' + 'a');
    } else if (keep) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  return name;
}

// A flag rather than a value: "--x", or "-x" with a letter ("-1" and "-.5" are numbers).
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  if (word[1] == '-') return true;
  return (word[1] >= 'a' && word[1] <= 'z') || (word[1] >= 'A' && word[1] <= 'Z');
}

std::string dashed(std::string_view name) {
  return fmt::format("{}{}", name.size() == 1 ? "-" : "--", name);
}

// What help shows for a value: "N", "DIR", "a|b|c"; "" for a flag that takes none.
std::string value_placeholder(const BoundOption& bound) {
  if (bound.is_flag) return "";
  std::string shown = bound.option.rules.placeholder;
  if (shown.empty()) {
    const std::string type = bound.type();
    if (!bound.option.rules.choices.empty()) {
      shown = fmt::format("{}", fmt::join(bound.option.rules.choices, "|"));
    } else if (type.find("integer") != std::string::npos) {
      shown = "N";
    } else if (type.find("number") != std::string::npos) {
      shown = "X";
    } else {
      shown = "TEXT";
    }
  }
  return bound.is_list ? shown + " ..." : shown;
}

std::string spelling(const BoundOption& bound) {
  std::string text = dashed(bound.option.name);
  for (const std::string& alias : bound.option.rules.aliases) text += ", " + dashed(alias);
  const std::string placeholder = value_placeholder(bound);
  if (!placeholder.empty()) text += " " + placeholder;
  const std::string& negation = bound.option.rules.negation;
  if (!negation.empty()) text += ", " + dashed(negation);
  return text;
}

// A default worth showing: not an empty text or list, an unset optional, or a flag that is off.
std::string shown_default(const BoundOption& bound) {
  const std::string value = bound.toml();
  return value == "\"\"" || value == "[]" || value == "false" ? "" : value;
}

std::string cell(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

void OptionSet::add(std::string group, BoundOption option) {
  std::vector<std::string> names = option.option.rules.aliases;
  names.push_back(option.option.name);
  if (!option.option.rules.negation.empty()) {
    PITON_ASSERT(option.is_flag, "--{} takes a value, so nothing negates it", option.option.name);
    names.push_back(option.option.rules.negation);
  }
  for (const std::string& name : names) {
    bool negated = false;
    PITON_ASSERT(find(name, &negated) == nullptr, "option --{} is declared twice", name);
  }
  const std::string key = slug(group);
  PITON_ASSERT(!key.empty(), "the group of --{} has no name", option.option.name);
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& other) { return slug(other.title) == key; });
  if (found == groups_.end()) found = groups_.insert(found, Group{std::move(group), {}});
  found->options.push_back(std::move(option));
}

BoundOption* OptionSet::find(std::string_view name, bool* negated) {
  *negated = false;
  for (Group& group : groups_) {
    for (BoundOption& bound : group.options) {
      const OptionRules& rules = bound.option.rules;
      if (bound.option.name == name || has(rules.aliases, name)) return &bound;
      if (!rules.negation.empty() && rules.negation == name) {
        *negated = true;
        return &bound;
      }
    }
  }
  return nullptr;
}

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> names;
  for (const Group& group : groups_) {
    for (const BoundOption& bound : group.options) {
      names.push_back(bound.option.name);
      const OptionRules& rules = bound.option.rules;
      names.insert(names.end(), rules.aliases.begin(), rules.aliases.end());
      if (!rules.negation.empty()) names.push_back(rules.negation);
    }
  }
  return names;
}

std::string OptionSet::suggestion(std::string_view unknown) const {
  return nearest_name(unknown, names());
}

std::vector<std::string> OptionSet::parse(const std::vector<std::string>& words) {
  std::vector<std::string> positional;
  std::map<const BoundOption*, std::vector<std::string>> seen;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      positional.insert(positional.end(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        words.end());
      break;
    }
    if (!looks_like_flag(word)) {
      positional.push_back(word);
      continue;
    }
    const std::size_t equals = word.find('=');
    const bool attached = equals != std::string::npos;
    const std::string flag = word.substr(0, equals);
    const std::string name = flag.substr(flag[1] == '-' ? 2 : 1);
    bool negated = false;
    BoundOption* bound = find(name, &negated);
    // One dash is for one letter, two are for a word.
    if (bound == nullptr || dashed(name) != flag) {
      const std::string near = suggestion(name);
      throw Error(Fault::kUsage, "{}: unknown option{}; --help lists all", flag,
                  near.empty() ? "" : fmt::format(", did you mean {}?", dashed(near)));
    }
    std::vector<std::string> values;
    if (negated) {
      if (attached) throw Error(Fault::kUsage, "{}: takes no value, got \"{}\"", flag, word);
      values = {"false"};
    } else if (attached) {
      values = {word.substr(equals + 1)};
    } else if (bound->is_flag) {
      values = {"true"};
    } else {
      while (i + 1 < words.size() && !looks_like_flag(words[i + 1])) {
        values.push_back(words[++i]);
        if (!bound->is_list) break;
      }
      if (values.empty()) {
        throw Error(Fault::kUsage, "{}: got no value, wanted {}{}", flag, bound->type(),
                    i + 1 < words.size() && words[i + 1] != "--"
                        ? fmt::format(" ({0}={1} if that is the value)", flag, words[i + 1])
                        : "");
      }
    }
    const auto [earlier, first] = seen.try_emplace(bound, values);
    if (!first && earlier->second != values) {
      throw Error(Fault::kUsage, "{}: given twice, as \"{}\" and as \"{}\"; give it once",
                  dashed(bound->option.name), fmt::join(earlier->second, " "),
                  fmt::join(values, " "));
    }
    bound->set(values);
    bound->given = true;
  }
  return positional;
}

bool OptionSet::given(std::string_view name) const {
  for (const Group& group : groups_) {
    for (const BoundOption& bound : group.options) {
      if (bound.option.name == name) return bound.given;
    }
  }
  PITON_ASSERT(false, "no option is named --{}", name);
}

std::string OptionSet::to_toml() const {
  std::string text;
  for (const Group& group : groups_) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", slug(group.title));
    for (const BoundOption& bound : group.options) {
      const std::string value = bound.toml();
      if (value.empty()) {
        text += fmt::format("# {} is not set\n", bound.option.name);
      } else {
        text += fmt::format("{} = {}\n", bound.option.name, value);
      }
    }
  }
  return text;
}

std::string OptionSet::help() const {
  constexpr std::size_t kColumn = 34;  // where the explanations start
  std::string text;
  for (const Group& group : groups_) {
    text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", group.title);
    for (const BoundOption& bound : group.options) {
      const std::string left = "  " + spelling(bound);
      const std::string value = shown_default(bound);
      text += left;
      text += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                        : std::string(kColumn - left.size(), ' ');
      text += bound.option.help;
      if (!value.empty()) text += fmt::format(" (default: {})", value);
      text += "\n";
    }
  }
  return text;
}

std::string OptionSet::markdown() const {
  std::string text;
  for (const Group& group : groups_) {
    text += fmt::format(
        "{}#### {}\n\n| option | value | default | meaning |\n| --- | --- | --- | --- |\n",
        text.empty() ? "" : "\n", group.title);
    for (const BoundOption& bound : group.options) {
      std::string names = fmt::format("`{}`", dashed(bound.option.name));
      for (const std::string& alias : bound.option.rules.aliases) {
        names += fmt::format(", `{}`", dashed(alias));
      }
      const std::string& negation = bound.option.rules.negation;
      if (!negation.empty()) names += fmt::format(", `{}`", dashed(negation));
      const std::string value = shown_default(bound);
      text += fmt::format("| {} | {} | {} | {} |\n", names, cell(bound.type()),
                          value.empty() ? "" : fmt::format("`{}`", cell(value)),
                          cell(bound.option.help));
    }
  }
  return text;
}

}  // namespace piton
