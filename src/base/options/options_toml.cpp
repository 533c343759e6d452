// Reading options from TOML files, and comparing with a stored one.

#include <toml++/toml.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/files/files.h"
#include "base/nesting.h"
#include "base/options/options.h"
#include "base/options/options_in_file.h"

namespace piton {
namespace {

// Configurations are written by hand; a longer file is not one.
constexpr std::int64_t kLongestBytes = 16 << 20;
// The key of the file that a file starts from.
constexpr const char* kInherit = "inherit";

toml::table parse_text(std::string_view text, const std::string& name) {
  check_toml_depth(text, name);
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw Error(Fault::kUsage, "{}:{}: not TOML: {}", name, error.source().begin.line,
                error.description());
  }
}

// One `key = value` of any table.
struct Entry {
  std::string key;
  const toml::node* node;
};

void collect_from(const toml::table& table, std::vector<Entry>& entries) {
  for (const auto& [key, node] : table) {
    if (const toml::table* inner = node.as_table()) {
      collect_from(*inner, entries);
    } else {
      entries.push_back({std::string(key.str()), &node});
    }
  }
}

// Entries in the order of the file, so that the first mistake is reported first.
std::vector<Entry> entries_of(const toml::table& table) {
  std::vector<Entry> entries;
  collect_from(table, entries);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.node->source().begin.line, a.node->source().begin.column) <
           std::pair(b.node->source().begin.line, b.node->source().begin.column);
  });
  return entries;
}

std::string kind_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

// The value as a word of the command line; nullopt if `type` does not accept this kind of value.
std::optional<std::string> word_of(const toml::node& node, bool is_flag, std::string_view type) {
  const bool integer = type.find("integer") != std::string_view::npos;
  const bool number = type.ends_with("number");
  if (const auto* value = node.as_boolean()) {
    if (is_flag) return value->get() ? "true" : "false";
  } else if (const auto* value = node.as_integer()) {
    if (integer || number) return fmt::format("{}", value->get());
  } else if (const auto* value = node.as_floating_point()) {
    // TOML reads 1e3 as a float; reading the word checks that it is whole.
    if (integer || number) return fmt::format("{}", value->get());
  } else if (const auto* value = node.as_string()) {
    // "4k"; unsigned 64-bit integers above TOML's limit are stored as text.
    if (!is_flag) return value->get();
  }
  return std::nullopt;
}

std::vector<std::string> words_of(const toml::node& node, const BoundOption& bound) {
  const std::string type = bound.type();
  const toml::array* array = node.as_array();
  const auto refuse = [&](const toml::node& bad) {
    throw Error(Fault::kUsage, "{}: got {}, wanted {}", bound.option.name, kind_of(bad), type);
  };
  if (array == nullptr || !bound.is_list) {
    auto word = word_of(node, bound.is_flag, type);
    // A flag with choices may have one of them as text.
    if (!word && bound.is_flag && !bound.option.rules.choices.empty())
      word = word_of(node, false, type);
    if (!word) refuse(node);
    return {*word};
  }
  std::vector<std::string> words;
  for (const toml::node& element : *array) {
    const auto word = word_of(element, false, type);
    if (!word) refuse(element);
    words.push_back(*word);
  }
  return words;
}

// The values of an option of another program, whose type is not known here; nullopt for a flag that
// is off.
std::optional<std::vector<std::string>> foreign_words(const toml::node& node) {
  if (const auto* value = node.as_boolean()) {
    if (!value->get()) return std::nullopt;
    return std::vector<std::string>{};
  }
  std::vector<std::string> words;
  const auto add = [&](const toml::node& one) {
    if (const auto* text = one.as_string()) words.push_back(text->get());
    if (const auto* number = one.as_integer()) words.push_back(fmt::format("{}", number->get()));
    if (const auto* number = one.as_floating_point()) {
      words.push_back(fmt::format("{}", number->get()));
    }
  };
  if (const toml::array* array = node.as_array()) {
    for (const toml::node& one : *array) add(one);
  } else {
    add(node);
  }
  return words;
}

// The files from the first one to the one that `entry` of file `name` inherits.
std::vector<std::filesystem::path> chain_with(const Entry& entry, const std::string& name,
                                              const std::vector<std::filesystem::path>& above) {
  const std::string where =
      fmt::format("{}:{}: {}", name, entry.node->source().begin.line, kInherit);
  const auto* text = entry.node->as_string();
  if (text == nullptr) {
    throw Error(Fault::kUsage, "{}: got {}, wanted the name of a file as text", where,
                kind_of(*entry.node));
  }
  const std::filesystem::path file = above.back().parent_path() / text->get();
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) {
    throw Error(Fault::kUsage, "{}: got \"{}\", but there is no file {}", where, text->get(),
                file.string());
  }
  for (const std::filesystem::path& other : above) {
    if (!std::filesystem::equivalent(file, other, none)) continue;
    throw Error(Fault::kUsage, "{}: got \"{}\", but {} starts from this file", where, text->get(),
                file.string());
  }
  std::vector<std::filesystem::path> chain = above;
  chain.push_back(file);
  return chain;
}

bool same(const toml::node& a, const toml::node& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.ref<std::int64_t>() == b.ref<std::int64_t>();
    return a.value<double>() == b.value<double>();
  }
  if (a.is_string() && b.is_string()) return a.ref<std::string>() == b.ref<std::string>();
  if (a.is_boolean() && b.is_boolean()) return a.ref<bool>() == b.ref<bool>();
  const toml::array* list_a = a.as_array();
  const toml::array* list_b = b.as_array();
  if (list_a == nullptr || list_b == nullptr || list_a->size() != list_b->size()) return false;
  for (std::size_t i = 0; i < list_a->size(); ++i) {
    if (!same((*list_a)[i], (*list_b)[i])) return false;
  }
  return true;
}

// The value for a message, as in the file; doubles in their shortest form.
std::string literal_of(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) {
    const std::string digits = fmt::format("{}", value->get());
    return digits.find_first_of(".en") == std::string::npos ? fmt::format("{}.0", digits) : digits;
  }
  if (const auto* value = node.as_string()) return fmt::format("\"{}\"", value->get());
  const toml::array* array = node.as_array();
  if (array == nullptr) return kind_of(node);
  std::vector<std::string> literals;
  for (const toml::node& element : *array) literals.push_back(literal_of(element));
  return fmt::format("[{}]", fmt::join(literals, ", "));
}

}  // namespace

void OptionSet::read_toml(const std::filesystem::path& file) {
  const std::vector<std::filesystem::path> above = {file};
  read_text(read_text_file(file, kLongestBytes), file.string(), &above);
}

void OptionSet::read_toml_text(std::string_view text, const std::string& name) {
  read_text(text, name, nullptr);
}

void OptionSet::read_text(std::string_view text, const std::string& name,
                          const std::vector<std::filesystem::path>* above) {
  const toml::table table = parse_text(text, name);
  std::vector<Entry> entries = entries_of(table);
  const auto inherited = std::find_if(entries.begin(), entries.end(),
                                      [](const Entry& entry) { return entry.key == kInherit; });
  if (inherited != entries.end() && above != nullptr) {
    const std::vector<std::filesystem::path> chain = chain_with(*inherited, name, *above);
    read_text(read_text_file(chain.back(), kLongestBytes), chain.back().string(), &chain);
    entries.erase(inherited);
  }
  origin_ = name;
  std::map<const BoundOption*, std::uint32_t> lines;
  std::vector<std::string> mistakes;
  const auto read = [&](const std::string& key, const toml::node& node) {
    bool negated = false;
    BoundOption* bound = find(key, &negated);
    if (bound == nullptr && foreign_ != nullptr && foreign_->words(key)) {
      const std::optional<std::vector<std::string>> words = foreign_words(node);
      if (words) take_foreign(key, *words);
      return;
    }
    if (bound == nullptr) {
      const std::string near = suggestion(key);
      throw Error(
          Fault::kUsage, "unknown option \"{}\"{}", key,
          near.empty() ? "; --help lists all" : fmt::format(", did you mean \"{}\"?", near));
    }
    const std::uint32_t line = node.source().begin.line;
    const auto [earlier, first] = lines.try_emplace(bound, line);
    if (!first) {
      throw Error(Fault::kUsage, "{} is given twice; line {} sets {} too", key, earlier->second,
                  bound->option.name);
    }
    std::vector<std::string> words = words_of(node, *bound);
    if (negated) words = {words.front() == "true" ? "false" : "true"};
    bound->set(words);
    bound->given = true;
    bound->origin = name;
  };
  for (const auto& [key, node] : entries) {
    try {
      read(key, *node);
    } catch (const Error& error) {
      mistakes.push_back(fmt::format("{}:{}: {}", name, node->source().begin.line, error.what()));
    }
  }
  throw_all(mistakes);
}

std::vector<std::string> OptionSet::differences(const std::filesystem::path& stored,
                                                Resume rule) const {
  return differences_from(read_text_file(stored, kLongestBytes), stored.string(), rule);
}

std::vector<std::string> OptionSet::differences_from(std::string_view text, const std::string& name,
                                                     Resume rule) const {
  const toml::table table = parse_text(text, name);
  const std::vector<Entry> entries = entries_of(table);
  const auto stored_value = [&](const Option& option) -> const toml::node* {
    for (const auto& [key, node] : entries) {
      if (key == option.name) return node;
      for (const std::string& alias : option.rules.aliases) {
        if (key == alias) return node;
      }
    }
    return nullptr;
  };
  std::vector<std::string> messages;
  for (const Group& group : groups_) {
    for (const BoundOption& bound : group.options) {
      const Option& option = bound.option;
      if (option.rules.resume != rule) continue;
      const toml::node* then = stored_value(option);
      const std::string now = bound.toml();
      // An option that the file does not have yet differs only if the user gave it.
      if (then == nullptr && (now.empty() || !bound.given)) continue;
      if (then != nullptr && !now.empty()) {
        const toml::table today = toml::parse("x = " + now);
        if (same(*then, *today.get("x"))) continue;
      }
      messages.push_back(fmt::format("--{}: {} has {}, this run has {}", option.name, name,
                                     then == nullptr ? "none" : literal_of(*then),
                                     now.empty() ? "none" : now));
    }
  }
  return messages;
}

std::vector<std::pair<std::string, std::string>> options_in_file(
    const std::filesystem::path& file) {
  const std::string name = file.string();
  const toml::table table = parse_text(read_text_file(file, kLongestBytes), name);
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto& [key, node] : entries_of(table)) {
    options.emplace_back(key, node->is_string() ? node->ref<std::string>() : literal_of(*node));
  }
  return options;
}

}  // namespace piton
