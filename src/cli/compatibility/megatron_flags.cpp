#include "cli/compatibility/megatron_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/options/other_names.h"
#include "cli/compatibility/environment.h"

namespace piton::cli {
namespace {

// "name:1=a|b", "name:1=a>c|b>d"
MegatronFlag read_flag(std::string_view text, const MegatronGroup& group) {
  MegatronFlag flag{.kind = group.kind, .note = group.note};
  const std::size_t colon = text.find(':');
  flag.name = text.substr(0, colon);
  if (colon == std::string_view::npos) return flag;
  const char count = text[colon + 1];
  flag.words = count == '*' ? kAnyWords : count - '0';
  const std::size_t equals = text.find('=', colon);
  if (equals == std::string_view::npos) return flag;
  std::istringstream values{std::string(text.substr(equals + 1))};
  for (std::string value; std::getline(values, value, '|');) {
    const std::size_t arrow = value.find('>');
    flag.values.push_back(value.substr(0, arrow));
    flag.become.push_back(arrow == std::string::npos ? value : value.substr(arrow + 1));
  }
  return flag;
}

std::vector<MegatronFlag> all_flags() {
  std::vector<MegatronFlag> all;
  for (const MegatronGroup& group : megatron_table()) {
    std::istringstream names{std::string(group.flags)};
    for (std::string name; names >> name;) all.push_back(read_flag(name, group));
  }
  return all;
}

const MegatronFlag* find_flag(const std::vector<MegatronFlag>& flags, std::string_view name) {
  const std::string spelt = with_dashes(name);
  for (const MegatronFlag& flag : flags) {
    if (with_dashes(flag.name) == spelt) return &flag;
  }
  return nullptr;
}

std::vector<std::string> words_in(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool depends_on_model(const std::string& flag) {
  return flag == "group-query-attention" || flag == "no-position-embedding";
}

// Why the flag of a fixed property contradicts this model; "" if it does not.
std::string contradiction(const std::string& flag, const ModelConfig& model) {
  if (flag == "group-query-attention" && model.groups == model.heads) {
    return fmt::format("every head has its own keys; give --num-query-groups, below {} heads",
                       model.heads);
  }
  if (flag == "no-position-embedding" && model.positions == PositionKind::kLearned) {
    return "positions are learned; give --position-embedding-type rope, or none";
  }
  return "";
}

std::string_view title(MegatronKind kind) {
  switch (kind) {
    case MegatronKind::kWorks:
      return "Work as they are";
    case MegatronKind::kMeans:
      return "Other spellings";
    case MegatronKind::kRead:
      return "Translated into other options (cli/compatibility)";
    case MegatronKind::kIgnored:
      return "Accepted without effect (a line at the start lists them)";
    case MegatronKind::kSame:
      return "Ask for what Piton does anyway (other values and other models are refused)";
    case MegatronKind::kNotYet:
      return "Not yet (refused, all in one message)";
  }
  PITON_ASSERT(false, "kind {}", static_cast<int>(kind));
}

}  // namespace

std::optional<MegatronFlag> megatron_flag(std::string_view name) {
  const std::vector<MegatronFlag> flags = all_flags();
  const MegatronFlag* found = find_flag(flags, name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

MegatronFlags::MegatronFlags() : flags_(all_flags()) {
  std::erase_if(flags_, [](const MegatronFlag& f) { return f.kind == MegatronKind::kWorks; });
}

const MegatronFlag* MegatronFlags::find(std::string_view name) const {
  return find_flag(flags_, name);
}

std::optional<int> MegatronFlags::words(std::string_view name) const {
  const MegatronFlag* flag = find(name);
  if (flag == nullptr) return std::nullopt;
  return flag->words;
}

std::vector<std::string> MegatronFlags::take(const std::string& name,
                                             const std::vector<std::string>& values) {
  const MegatronFlag* flag = find(name);
  PITON_ASSERT(flag != nullptr, "--{} was asked about", name);
  if (flag->words == 1 && values.size() != 1) {
    throw Error(Fault::kUsage, "--{}: got no value, wanted one", name);
  }
  if (flag->kind == MegatronKind::kNotYet) {
    throw Error(Fault::kUsage, "--{}: not yet{}{}", name, flag->note.empty() ? "" : "; ",
                flag->note);
  }
  const bool means = flag->kind == MegatronKind::kMeans;
  std::vector<std::string> meant = means ? words_in(flag->note) : std::vector<std::string>{};
  for (const std::string& value : values) {
    const auto allowed = std::find(flag->values.begin(), flag->values.end(), value);
    if (!flag->values.empty() && allowed == flag->values.end()) {
      throw Error(Fault::kUsage, "--{}: got \"{}\", wanted {}; {}{}", name, value,
                  fmt::join(flag->values, " or "), means ? "here it is " : "", flag->note);
    }
    meant.push_back(flag->values.empty() ? value : flag->become[allowed - flag->values.begin()]);
  }
  if (means) return meant;
  if (flag->kind == MegatronKind::kRead) read_[flag->name] = fmt::to_string(fmt::join(values, " "));
  if (std::find(given_.begin(), given_.end(), flag) == given_.end()) given_.push_back(flag);
  return {};
}

std::optional<std::string> MegatronFlags::value_of(std::string_view name) const {
  const auto found = read_.find(std::string(name));
  return found == read_.end() ? std::nullopt : std::optional(found->second);
}

void MegatronFlags::report(Log& log) const {
  std::vector<std::pair<std::string_view, std::vector<std::string>>> reasons;
  for (const MegatronFlag* flag : given_) {
    if (flag->kind != MegatronKind::kIgnored) continue;
    auto at = std::find_if(reasons.begin(), reasons.end(),
                           [&](const auto& one) { return one.first == flag->note; });
    if (at == reasons.end()) at = reasons.insert(at, {flag->note, {}});
    at->second.push_back("--" + flag->name);
  }
  for (const auto& [note, names] : reasons) {
    log.info(fmt::format("{}: no meaning here: {}", fmt::join(names, ", "), note));
  }
}

void MegatronFlags::check(const ModelOptions& options) const {
  // Others are true of every model, also of one that only --load says.
  if (std::ranges::none_of(given_, [](const MegatronFlag* flag) {
        return flag->kind == MegatronKind::kSame && depends_on_model(flag->name);
      })) {
    return;
  }
  const ModelConfig model = options.resolve(1);  // the vocabulary does not matter here
  std::vector<std::string> mistakes;
  for (const MegatronFlag* flag : given_) {
    const std::string why = contradiction(flag->name, model);
    if (!why.empty()) mistakes.push_back(fmt::format("--{}: {}", flag->name, why));
  }
  throw_all(mistakes);
}

namespace {

// The names with commas between them, in lines of at most 120 columns.
std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kColumns = 120;
  std::string text;
  std::size_t line = 0;  // columns of the last one
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string word = names[i] + (i + 1 < names.size() ? "," : "");
    const bool fits = line + 1 + word.size() <= kColumns;
    if (i > 0) text += fits ? " " : "\n";
    line = i > 0 && fits ? line + 1 + word.size() : word.size();
    text += word;
  }
  return text + "\n";
}

// A row for each flag of a group of kMeans whose values become others; "" for other groups.
std::string rows_of_values(const MegatronGroup& group) {
  std::string rows;
  for (const std::string& word : words_in(group.flags)) {
    const MegatronFlag flag = read_flag(word, group);
    for (std::size_t i = 0; group.kind == MegatronKind::kMeans && i < flag.values.size(); ++i)
      rows += fmt::format("| `--{} {}` | `{} {}` |\n", flag.name, flag.values[i], group.note,
                          flag.become[i]);
  }
  return rows;
}

}  // namespace

std::string megatron_page() {
  std::string page =
      "# What becomes of Megatron-LM's flags\n\n"
      "Every flag of `megatron/training/arguments.py` (core 0.16), some of older versions and of\n"
      "MindSpeed. Written by `piton help --megatron` (`make docs`); a test compares. How logs, "
      "files\n"
      "and data differ: [coming_from_megatron.md](coming_from_megatron.md).\n";
  for (const MegatronKind kind :
       {MegatronKind::kWorks, MegatronKind::kMeans, MegatronKind::kRead, MegatronKind::kIgnored,
        MegatronKind::kSame, MegatronKind::kNotYet}) {
    page += fmt::format("\n## {}\n\n", title(kind));
    if (kind != MegatronKind::kWorks) {
      page += kind == MegatronKind::kMeans ? "| flag | means |\n| --- | --- |\n"
                                           : "| flags | why |\n| --- | --- |\n";
    }
    for (const MegatronGroup& group : megatron_table()) {
      if (group.kind != kind) continue;
      if (const std::string rows = rows_of_values(group); !rows.empty()) {
        page += rows;
        continue;
      }
      std::vector<std::string> names;
      for (const std::string& word : words_in(group.flags)) {
        const MegatronFlag flag = read_flag(word, group);
        names.push_back(flag.values.empty()
                            ? fmt::format("`--{}`", flag.name)
                            : fmt::format("`--{} {}`", flag.name, fmt::join(flag.values, "`, `")));
      }
      const std::string note =
          kind == MegatronKind::kMeans ? fmt::format("`{}`", group.note) : std::string(group.note);
      page += kind == MegatronKind::kWorks
                  ? list_of(names)
                  : fmt::format("| {} | {} |\n", fmt::join(names, ", "), note);
    }
  }
  return page + environment_page();
}

}  // namespace piton::cli
