// Options: each is declared once, in the struct that uses it.
//
//   struct OptimizerOptions {
//     double beta1 = 0.9;
//     template <typename Visitor>
//     void visit(Visitor&& v) {
//       v(Option{"adam-beta1", "decay of the first moment", {.resume = Resume::kMustMatch}},
//       beta1);
//     }
//   };
//
// The same visit declares flags, reads TOML, prints --help and docs/cli.md, writes the resolved
// configuration next to the checkpoint, and compares it on resume. A TOML key is the flag without
// its leading dashes, and may have "_" for "-"; tables in a file only group keys ("[optimizer] lr =
// 1e-3" equals "lr = 1e-3"). The key "inherit" names a file, relative to its own, that is read
// first. "--no-NAME" clears the flag NAME, and "--NAME" the flag "no-NAME".
//
// Numbers may be written 1_000, 1e3, 4k, 2M, 1.5G (powers of 1000) or 4Ki, 1Mi (of 1024).
//
// Types of a value: bool (flag; `negation` names the flag that clears it), int, std::int64_t,
// std::uint64_t, double, std::string, std::vector<std::string>, std::vector<int>,
// std::vector<std::int64_t>, std::vector<double>, std::optional of a scalar, and an enum through
// Choice<E>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace piton {

// What a resume does if the stored value differs from the current one.
enum class Resume {
  kFree,       // may differ: paths, intervals, threads
  kMustMatch,  // changes the experiment: an error that names the flag and both values
  kSchedule,   // changes the learning rate from here on: only if the user allows it
};

struct OptionRules {
  std::vector<std::string> aliases = {};  // other spellings of the flag, without dashes
  std::string negation = {};              // bool only: the flag that sets it to false
  Resume resume = Resume::kFree;
  std::vector<std::string> choices = {};  // strings only: the values it takes
  std::string placeholder = {};  // what help shows for the value ("N", "DIR"); derived if empty
};

struct Option {
  std::string name;  // the flag without "--"
  std::string help;  // one line, no full stop
  OptionRules rules = {};
};

// A value of an enum, spelled as one of `names`: v(Option{...}, Choice(schedule, {{"1f1b",
// Schedule::k1F1B}, ...})).
template <typename E>
class Choice {
 public:
  Choice(E& value, std::vector<std::pair<std::string, E>> names)
      : value_(&value), names_(std::move(names)) {}
  E& value() const { return *value_; }
  const std::vector<std::pair<std::string, E>>& names() const { return names_; }

 private:
  E* value_;
  std::vector<std::pair<std::string, E>> names_;
};

// One option bound to its variable, with its type erased.
struct BoundOption {
  Option option;
  bool is_flag = false;  // bool: takes no value on the command line ("--x", or "--x=true|false")
  bool is_list = false;  // takes one or more values
  std::function<void(const std::vector<std::string>& words)>
      set;                            // throws Error(kUsage) with got/wanted
  std::function<std::string()> toml;  // current value as a TOML literal; "" for an unset optional
  std::function<std::string()> type;  // "integer", "number", "text", "one of a|b|c", ...
  bool given = false;                 // set by a flag or a file (not a default)
  std::string origin = {};            // where it was given: "the command line", a file
  std::string initial = {};           // toml() when it was declared: its default
};

// An option that was given another value than its default.
struct ChangedOption {
  std::string name;
  std::string value;  // TOML literal
  std::string origin;
};

// Throws one Error(kUsage) with all of `mistakes`, one per line. Returns if there are none.
void throw_all(const std::vector<std::string>& mistakes);

// Options of another program, so that its scripts work here. Decides about flags that no option of
// this program has.
class ForeignOptions {
 public:
  virtual ~ForeignOptions() = default;
  // The number of values of flag `name`: 0, 1, or kAnyWords for all words up to the next flag;
  // nullopt if the other program does not have the flag either.
  virtual std::optional<int> words(std::string_view name) const = 0;
  // Handles a flag that was given. Returns the equivalent flags of this program as words to parse,
  // or none. Throws Error(kUsage) to refuse it.
  virtual std::vector<std::string> take(const std::string& name,
                                        const std::vector<std::string>& values) = 0;
};
inline constexpr int kAnyWords = -1;

class OptionSet {
 public:
  // Declares every option of `options`, which must outlive the set. `group` is their heading in
  // --help. Asserts that no name or alias is declared twice.
  template <typename Struct>
  void add(std::string group, Struct& options);

  void add(std::string group, BoundOption option);

  // Called for flags and keys that are not declared; must outlive the set. Null: those are errors.
  void set_foreign(ForeignOptions* foreign) { foreign_ = foreign; }

  // Parses flags ("--name value", "--name=value", "-h"). Words that are not flags are returned, in
  // order (positional arguments). Throws one Error(kUsage) with all mistakes: unknown flags ("did
  // you mean"), missing and unreadable values, and two names of one option with two values. If a
  // flag is given twice, the last one counts. `origin`: where the words are from, for changed().
  std::vector<std::string> parse(const std::vector<std::string>& words,
                                 const std::string& origin = "the command line");

  // Notes of the last parse() for the user: flags that were given twice.
  const std::vector<std::string>& notes() const { return notes_; }

  // Reads a TOML file: unknown keys, wrong types and duplicates are Error(kUsage) naming
  // file:line. Flags win over files: call before parse(). A file that `inherit` names is read
  // first, so that own keys win; that it is missing or starts from this one is Error(kUsage) too.
  void read_toml(const std::filesystem::path& file);
  // The same for text in memory, which inherits nothing; `name` is the file name in messages.
  void read_toml_text(std::string_view text, const std::string& name);

  // The resolved configuration: every option with its value, grouped, as TOML.
  std::string to_toml() const;

  // Compares with a stored to_toml(): one message for each option of `rule` whose value differs.
  std::vector<std::string> differences(const std::filesystem::path& stored,
                                       Resume rule = Resume::kMustMatch) const;
  // The same with text in memory; `name` is the file name in messages.
  std::vector<std::string> differences_from(std::string_view text, const std::string& name,
                                            Resume rule = Resume::kMustMatch) const;

  // Help text: one block per group. With `only`: only those options, and a last line with the
  // number of the others.
  std::string help(const std::vector<std::string>& only = {}) const;
  // The same with one Markdown table per group, for docs/cli.md.
  std::string markdown() const;

  bool given(std::string_view name) const;
  // Options that were given by another name than theirs, an alias or one of another program: that
  // name, by the option's (both without dashes).
  const std::map<std::string, std::string>& other_names_given() const { return other_names_; }
  // Where it was given: "the command line", a file; "" if it was not.
  const std::string& origin(std::string_view name) const { return named(name).origin; }
  Resume resume_of(std::string_view name) const;
  // What was given and differs from its default, in the order of declaration.
  std::vector<ChangedOption> changed() const;
  // Counts as given what changed() of another set has, from which the values here come. That set
  // may have more options.
  void mark_given(const std::vector<ChangedOption>& changed);
  // Name and TOML literal of every option, "" for an unset optional.
  std::vector<std::pair<std::string, std::string>> values() const;

 private:
  struct Group {
    std::string title;
    std::string key;  // of its table in TOML
    std::vector<BoundOption> options;
  };
  // Where the option of a name is. Not a pointer: groups grow, and a set may be copied.
  struct Place {
    std::size_t group = 0;
    std::size_t option = 0;
    bool negated = false;  // the name clears the flag
  };
  struct Words;  // the words of a command line and the position in them
  BoundOption* find(std::string_view name, bool* negated);
  void add_to_index(const BoundOption& option, Place place);
  const BoundOption& named(std::string_view name) const;
  void parse_flag(Words& words);
  void take_foreign(const std::string& name, const std::vector<std::string>& values);
  // `above`: the files that inherit this one, the first one first; null for text in memory.
  void read_text(std::string_view text, const std::string& name,
                 const std::vector<std::filesystem::path>* above);
  std::vector<std::string> names() const;                  // aliases and negations included
  std::string suggestion(std::string_view unknown) const;  // "" when no name is near
  std::vector<Group> groups_;
  std::unordered_map<std::string, Place> index_;  // by each name, "-" for "_"
  std::vector<std::string> notes_;
  std::map<std::string, std::string> other_names_;
  std::string origin_;  // of what is read now
  ForeignOptions* foreign_ = nullptr;
};

// Makes the type-erased form; defined in options.cpp for the types listed above.
BoundOption bind_option(Option option, bool& value);
BoundOption bind_option(Option option, int& value);
BoundOption bind_option(Option option, std::int64_t& value);
BoundOption bind_option(Option option, std::uint64_t& value);
BoundOption bind_option(Option option, double& value);
BoundOption bind_option(Option option, std::string& value);
BoundOption bind_option(Option option, std::vector<std::string>& value);
BoundOption bind_option(Option option, std::vector<int>& value);
BoundOption bind_option(Option option, std::vector<std::int64_t>& value);
BoundOption bind_option(Option option, std::vector<double>& value);
BoundOption bind_option(Option option, std::optional<bool>& value);
BoundOption bind_option(Option option, std::optional<std::int64_t>& value);
BoundOption bind_option(Option option, std::optional<double>& value);
BoundOption bind_option(Option option, std::optional<std::string>& value);
// An enum through its names: `get` returns the index of the current value, `set` takes an index.
BoundOption bind_choice(Option option, std::vector<std::string> names, std::function<int()> get,
                        std::function<void(int)> set);

template <typename E>
BoundOption bind_option(Option option, Choice<E> choice) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choice.names()) names.push_back(name);
  auto get = [choice] {
    int index = 0;
    for (const auto& [name, value] : choice.names()) {
      if (value == choice.value()) return index;
      ++index;
    }
    return -1;
  };
  auto set = [choice](int index) { choice.value() = choice.names()[index].second; };
  return bind_choice(std::move(option), std::move(names), get, set);
}

template <typename Struct>
void OptionSet::add(std::string group, Struct& options) {
  options.visit(
      [&](Option option, auto&& value) { add(group, bind_option(std::move(option), value)); });
}

}  // namespace piton
