// Declaring options, reading them from words, and describing them.

#include "base/options/options.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/options/other_names.h"
#include "base/printable.h"
#include "base/several_errors.h"

namespace piton {
namespace {

// The default name of the option that clears `flag`; OptionRules may set another.
std::string opposite(std::string_view flag) {
  constexpr std::string_view kNo = "no-";
  return flag.starts_with(kNo) ? std::string(flag.substr(kNo.size())) : fmt::format("no-{}", flag);
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

// Whether a word is a flag, not a value: "--x", or "-x" with a letter ("-1" and "-.5" are numbers).
bool looks_like_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  if (word[1] == '-') return true;
  return (word[1] >= 'a' && word[1] <= 'z') || (word[1] >= 'A' && word[1] <= 'Z');
}

std::string dashed(std::string_view name) {
  return fmt::format("{}{}", name.size() == 1 ? "-" : "--", name);
}

// How help shows the value of an option: "N", "DIR", "a|b|c"; "" for a flag without a value.
std::string value_placeholder(const BoundOption& bound) {
  if (bound.is_flag) {
    const std::vector<std::string>& choices = bound.option.rules.choices;
    return choices.empty() ? "" : fmt::format("[{}]", fmt::join(choices, "|"));
  }
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

// The default that help shows: not an empty text or list, an unset optional, or a flag that is off,
// nor the value of an option whose help has a default in words.
std::string shown_default(const BoundOption& bound) {
  if (bound.option.help.find("(default") != std::string::npos) return "";
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

void throw_all(const std::vector<std::string>& mistakes) {
  if (mistakes.empty()) return;
  if (mistakes.size() == 1) throw Error(Fault::kUsage, mistakes[0]);
  std::string lines = fmt::format("{} options cannot be taken:", mistakes.size());
  for (const std::string& mistake : mistakes) lines += "\n  " + printable(mistake);
  throw SeveralErrors(Fault::kUsage, lines);
}

void OptionSet::add(std::string group, BoundOption option) {
  std::string key = slug(group);
  PITON_ASSERT(!key.empty(), "the group of --{} has no name", option.option.name);
  auto found = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& other) { return other.key == key; });
  if (found == groups_.end()) {
    found = groups_.insert(found, Group{std::move(group), std::move(key), {}});
  }
  add_to_index(option, {.group = static_cast<std::size_t>(found - groups_.begin()),
                        .option = found->options.size()});
  option.initial = option.toml();
  found->options.push_back(std::move(option));
}

void OptionSet::add_to_index(const BoundOption& bound, Place place) {
  const auto add_name = [&](const std::string& name, bool negated) {
    place.negated = negated;
    const bool added = index_.try_emplace(with_dashes(name), place).second;
    PITON_ASSERT(added, "option --{} is declared twice", name);
  };
  const std::string& name = bound.option.name;
  const OptionRules& rules = bound.option.rules;
  add_name(name, false);
  for (const std::string& alias : rules.aliases) add_name(alias, false);
  if (!rules.negation.empty()) {
    PITON_ASSERT(bound.is_flag, "--{} takes a value, so nothing negates it", name);
    add_name(rules.negation, true);
  }
  place.negated = true;
  // An option that has this name already keeps it.
  if (bound.is_flag) index_.try_emplace(with_dashes(opposite(name)), place);
}

BoundOption* OptionSet::find(std::string_view name, bool* negated) {
  const auto found = index_.find(with_dashes(name));
  *negated = found != index_.end() && found->second.negated;
  if (found == index_.end()) return nullptr;
  return &groups_[found->second.group].options[found->second.option];
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
  const std::vector<std::string> known = names();
  for (const std::string_view here : names_here(unknown)) {
    if (std::ranges::find(known, here) != known.end()) return std::string(here);
  }
  return nearest_name(unknown, known);
}

struct OptionSet::Words {
  const std::vector<std::string>& all;
  std::size_t at = 0;
  struct Earlier {
    std::string flag;  // as it was spelled
    std::vector<std::string> values;
    std::string meaning;  // the value that they gave
  };
  std::map<const BoundOption*, Earlier> seen;

  // The next `most` words, up to the next flag at most (kAnyWords: all up to the next flag).
  std::vector<std::string> values(int most) {
    std::vector<std::string> values;
    while (at + 1 < all.size() && !looks_like_flag(all[at + 1]) &&
           (most == kAnyWords || static_cast<int>(values.size()) < most)) {
      values.push_back(all[++at]);
    }
    return values;
  }

  // The next word if it is one of `choices`: the value of a flag that may be alone.
  std::optional<std::string> optional_value(const std::vector<std::string>& choices) {
    if (at + 1 == all.size() || std::ranges::find(choices, all[at + 1]) == choices.end())
      return std::nullopt;
    return all[++at];
  }
};

std::vector<std::string> OptionSet::parse(const std::vector<std::string>& all,
                                          const std::string& origin) {
  std::vector<std::string> positional;
  std::vector<std::string> mistakes;
  Words words{all};
  notes_.clear();
  origin_ = origin;
  for (; words.at < all.size(); ++words.at) {
    const std::string& word = all[words.at];
    if (word == "--") {
      positional.insert(positional.end(), all.begin() + static_cast<std::ptrdiff_t>(words.at) + 1,
                        all.end());
      break;
    }
    if (!looks_like_flag(word)) {
      positional.push_back(word);
      continue;
    }
    try {
      parse_flag(words);
    } catch (const Error& error) {
      mistakes.emplace_back(error.what());
    }
  }
  throw_all(mistakes);
  return positional;
}

void OptionSet::parse_flag(Words& words) {
  const std::string& word = words.all[words.at];
  const std::size_t equals = word.find('=');
  const bool attached = equals != std::string::npos;
  const std::string flag = word.substr(0, equals);
  const std::string name = flag.substr(flag[1] == '-' ? 2 : 1);
  bool negated = false;
  BoundOption* bound = find(name, &negated);
  // One dash for a single letter, two dashes for a word.
  const bool spelt = dashed(name) == flag;
  if (bound == nullptr && spelt && foreign_ != nullptr) {
    if (const std::optional<int> count = foreign_->words(name)) {
      take_foreign(name, attached ? std::vector{word.substr(equals + 1)} : words.values(*count));
      return;
    }
  }
  if (bound == nullptr || !spelt) {
    words.values(kAnyWords);  // skips the words up to the next flag: they are its values
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
    values = {words.optional_value(bound->option.rules.choices).value_or("true")};
  } else {
    values = words.values(bound->is_list ? kAnyWords : 1);
    if (values.empty()) {
      const std::size_t next = words.at + 1;
      throw Error(Fault::kUsage, "{}: got no value, wanted {}{}", flag, bound->type(),
                  next < words.all.size() && words.all[next] != "--"
                      ? fmt::format(" ({0}={1} if that is the value)", flag, words.all[next])
                      : "");
    }
  }
  bound->set(values);
  bound->given = true;
  bound->origin = origin_;
  if (with_dashes(name) == bound->option.name)
    other_names_.erase(bound->option.name);
  else if (!negated)
    other_names_[bound->option.name] = name;
  const auto [at, first] =
      words.seen.try_emplace(bound, Words::Earlier{flag, values, bound->toml()});
  Words::Earlier& earlier = at->second;
  // Other programs may give the two names other meanings; scripts give both the same value.
  const bool renamed = with_dashes(earlier.flag) != with_dashes(flag);
  if (!bound->is_flag && renamed && earlier.meaning != bound->toml()) {
    throw Error(Fault::kUsage, "{} and {}: two names of one option, got {} and {}; give one",
                earlier.flag, flag, fmt::join(earlier.values, " "), fmt::join(values, " "));
  }
  if (!bound->is_flag && renamed) return;
  if (!first && earlier.values != values) {
    notes_.push_back(fmt::format("{}: given twice, as \"{}\" and as \"{}\"; the last one counts",
                                 dashed(bound->option.name), fmt::join(earlier.values, " "),
                                 fmt::join(values, " ")));
    earlier.values = values;
    earlier.meaning = bound->toml();
  }
}

void OptionSet::take_foreign(const std::string& name, const std::vector<std::string>& values) {
  bool negated = false;
  const std::vector<std::string> meant = foreign_->take(name, values);
  if (meant.empty()) return;
  Words words{meant};
  for (; words.at < meant.size(); ++words.at) parse_flag(words);
  // The same with another name, not a flag that follows from it.
  if (meant.size() == values.size() + 1 && meant.front().starts_with("--"))
    other_names_[find(meant.front().substr(2), &negated)->option.name] = name;
}

const BoundOption& OptionSet::named(std::string_view name) const {
  const auto found = index_.find(with_dashes(name));
  PITON_ASSERT(found != index_.end(), "no option is named --{}", name);
  const Place place = found->second;
  const BoundOption& bound = groups_[place.group].options[place.option];
  PITON_ASSERT(bound.option.name == name, "--{} is another name of --{}", name, bound.option.name);
  return bound;
}

bool OptionSet::given(std::string_view name) const { return named(name).given; }

Resume OptionSet::resume_of(std::string_view name) const { return named(name).option.rules.resume; }

std::vector<ChangedOption> OptionSet::changed() const {
  std::vector<ChangedOption> changed;
  for (const Group& group : groups_) {
    for (const BoundOption& bound : group.options) {
      const std::string value = bound.toml();
      if (!bound.given || value == bound.initial) continue;
      changed.push_back({bound.option.name, value, bound.origin});
    }
  }
  return changed;
}

void OptionSet::mark_given(const std::vector<ChangedOption>& changed) {
  for (const ChangedOption& one : changed) {
    bool negated = false;
    BoundOption* bound = find(one.name, &negated);
    if (bound == nullptr) continue;
    bound->given = true;
    bound->origin = one.origin;
  }
}

std::vector<std::pair<std::string, std::string>> OptionSet::values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const Group& group : groups_) {
    for (const BoundOption& bound : group.options) {
      values.emplace_back(bound.option.name, bound.toml());
    }
  }
  return values;
}

std::string OptionSet::to_toml() const {
  std::string text;
  for (const Group& group : groups_) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", group.key);
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

std::string OptionSet::help(const std::vector<std::string>& only) const {
  constexpr std::size_t kColumn = 34;  // column where the explanations start
  std::string text;
  int hidden = 0;
  for (const Group& group : groups_) {
    bool headed = false;
    for (const BoundOption& bound : group.options) {
      const std::string& name = bound.option.name;
      if (!only.empty() && std::find(only.begin(), only.end(), name) == only.end()) {
        ++hidden;
        continue;
      }
      if (!headed) text += fmt::format("{}{}:\n", text.empty() ? "" : "\n", group.title);
      headed = true;
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
  if (hidden > 0) text += fmt::format("\n{} more options: --help all\n", hidden);
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
