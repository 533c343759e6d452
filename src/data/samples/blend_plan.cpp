#include "data/samples/blend_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/trimmed.h"
#include "data/samples/blended_dataset.h"
#include "data/samples/data_paths.h"

namespace piton {
namespace {

std::optional<double> number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::array<double, 3> shares_of(const std::string& split) {
  std::vector<double> shares;
  std::string_view rest = trimmed(split);
  // As Megatron-LM, whose script of Llama 3 gives "'99,1,0'", with the quotes.
  if (rest.size() >= 2 && rest.front() == rest.back() && (rest[0] == '\'' || rest[0] == '"'))
    rest = rest.substr(1, rest.size() - 2);
  while (true) {
    const auto comma = rest.find_first_of(",/");
    const auto share = number(rest.substr(0, comma));
    if (!share || !(*share >= 0) || !std::isfinite(*share) || shares.size() == 3) {
      throw Error(Fault::kUsage,
                  "--split: got \"{}\", wanted up to three shares of 0 or more, as in 969,30,1",
                  split);
    }
    shares.push_back(*share);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  shares.resize(3, 0.0);
  if (shares[0] + shares[1] + shares[2] <= 0) {
    throw Error(Fault::kUsage, "--split: got \"{}\", all shares are zero; give one of them some",
                split);
  }
  const auto parts = normalized(shares);
  return {parts[0], parts[1], parts[2]};
}

// The prefix of a corpus that may be named by one of its two files.
std::string prefix_of(std::string_view text) {
  std::string prefix(trimmed(text));
  const bool is_file = prefix.ends_with(".bin") || prefix.ends_with(".idx");
  if (is_file && !std::filesystem::exists(prefix + ".idx")) prefix.resize(prefix.size() - 4);
  return prefix;
}

BlendPlan plan_of(const std::vector<std::string>& words, std::string_view flag) {
  BlendPlan plan;
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < words.size(); i += 2) numbers += number(words[i]) ? 1 : 0;
  if (words.size() % 2 == 0 && numbers == words.size() / 2) {
    plan.weighted = true;
    plan.blend_single = true;
    for (std::size_t i = 0; i < words.size(); i += 2) {
      const double weight = *number(words[i]);
      if (!(weight > 0) || !std::isfinite(weight)) {
        throw Error(Fault::kUsage,
                    "--{}: weight of {}: got {}, wanted a number above 0; leave the corpus out "
                    "instead",
                    flag, words[i + 1], words[i]);
      }
      plan.parts.push_back({prefix_of(words[i + 1]), weight});
    }
    return plan;
  }
  for (const std::string& word : words) {
    // A number that is not a corpus is a weight without a prefix.
    if (number(word) && !std::filesystem::exists(word + ".idx")) {
      throw Error(Fault::kUsage,
                  "--{}: got {} words with the number {} among them, wanted prefixes alone, or "
                  "weights and prefixes in turn (0.3 a 0.7 b)",
                  flag, words.size(), word);
    }
    plan.parts.push_back({prefix_of(word), 0});
  }
  return plan;
}

}  // namespace

Shares share_bounds(const std::string& split) {
  const auto shares = shares_of(split);
  Shares bounds;
  double start = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    bounds[i] = {start, start + shares[i]};
    start += shares[i];
  }
  return bounds;
}

std::pair<std::int64_t, std::int64_t> bounds_of(double start, double end, std::int64_t sequences) {
  // nearbyint rounds halves to even, as Python's round does.
  const auto at = [&](double share) {
    return static_cast<std::int64_t>(std::nearbyint(share * static_cast<double>(sequences)));
  };
  if (end <= start) return {at(start), at(start)};
  return {std::min(at(start), sequences), std::min(at(end), sequences)};
}

std::pair<std::string, BlendPlan> weighted_plan(const std::string& text, std::string_view flag) {
  const auto wrong = [&](std::string_view what) {
    return Error(Fault::kUsage,
                 "--{}: {}: got \"{}\", wanted \"NAME: WEIGHT START:END PREFIX, ...\", as in "
                 "\"TRAIN: 0.7 0:0.9 wiki, 0.3 0:1 books\"",
                 flag, what, text);
  };
  const auto colon = text.find(':');
  if (colon == std::string::npos) throw wrong("no name");
  const std::string name(trimmed(std::string_view(text).substr(0, colon)));
  if (name.empty() || number(name) || name.find(' ') != std::string::npos) throw wrong("no name");
  BlendPlan plan;
  plan.weighted = true;
  std::string_view rest = std::string_view(text).substr(colon + 1);
  while (true) {
    const auto comma = rest.find(',');
    std::string_view part = trimmed(rest.substr(0, comma));
    std::array<std::string_view, 3> fields;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto space = i < 2 ? part.find_first_of(" \t") : std::string_view::npos;
      fields[i] = trimmed(part.substr(0, space));
      part = space == std::string_view::npos ? std::string_view{} : trimmed(part.substr(space));
    }
    const auto range = fields[1].find(':');
    if (fields[2].empty() || range == std::string_view::npos) throw wrong("a part is incomplete");
    const auto weight = number(fields[0]);
    const auto start = number(fields[1].substr(0, range)),
               end = number(fields[1].substr(range + 1));
    if (!weight || !(*weight > 0)) throw wrong("a weight is not a number above 0");
    if (!start || !end || !(*start >= 0) || !(*end <= 1) || !(*start < *end)) {
      throw wrong("a range is not within 0:1");
    }
    plan.parts.push_back({prefix_of(fields[2]), *weight, *start, *end});
    if (comma == std::string_view::npos) return {name, plan};
    rest.remove_prefix(comma + 1);
  }
}

BlendPlan whole_plan(const std::vector<std::string>& words, std::string_view flag) {
  BlendPlan plan = plan_of(words, flag);
  plan.blend_single = false;
  return plan;
}

BlendPlan divided_plan(const DataOptions& options, std::size_t set) {
  BlendPlan plan = plan_of(options.data_path, "data-path");
  const auto [start, end] = share_bounds(options.split)[set];
  if (end <= start) return {};
  for (BlendPart& part : plan.parts) {
    part.start = start;
    part.end = end;
    part.may_cut = true;
  }
  return plan;
}

namespace {

using NamedPlans = std::vector<std::pair<std::string, BlendPlan>>;

// A set for each corpus.
NamedPlans separate_plans(const std::vector<std::string>& words, const std::string& flag) {
  const BlendPlan plan = whole_plan(words, flag);
  if (plan.weighted) {
    throw Error(Fault::kUsage,
                "--{}: got weights with --multiple-validation-sets, which mixes no corpora; leave "
                "one of them out",
                flag);
  }
  std::vector<std::string> prefixes;
  for (const BlendPart& part : plan.parts) {
    if (std::ranges::find(prefixes, part.prefix) != prefixes.end()) {
      throw Error(
          Fault::kUsage,
          "--{}: {} is named twice, wanted each corpus once with --multiple-validation-sets", flag,
          part.prefix);
    }
    prefixes.push_back(part.prefix);
  }
  const std::vector<std::string> names = distinct_ends(prefixes);
  NamedPlans plans;
  for (std::size_t i = 0; i < names.size(); ++i)
    plans.push_back({names[i], {.parts = {plan.parts[i]}}});
  return plans;
}

}  // namespace

NamedPlans plans_of_sets(const DataOptions& options, std::size_t set, const std::string& name) {
  const std::vector<std::string>& apart = set == 0   ? options.train_data_path
                                          : set == 1 ? options.valid_data_path
                                                     : options.test_data_path;
  const std::vector<std::string>& texts = set == 0   ? options.train_weighted_split_paths
                                          : set == 1 ? options.valid_weighted_split_paths
                                                     : options.test_weighted_split_paths;
  NamedPlans plans;
  if (!options.data_path.empty()) plans.emplace_back(name, divided_plan(options, set));
  const std::string flag = name + "-data-path";
  if (set == 1 && options.multiple_validation_sets) {
    plans = separate_plans(apart, flag);
  } else if (!apart.empty()) {
    plans.emplace_back(name, whole_plan(apart, flag));
  }
  const std::string of_texts = name + "-weighted-split-paths";
  std::set<std::string> names;
  for (const std::string& text : texts) {
    plans.push_back(weighted_plan(text, of_texts));
    if (names.insert(plans.back().first).second) continue;
    throw Error(Fault::kUsage, "--{}: two sets have the name {}; rename one of them", of_texts,
                plans.back().first);
  }
  std::erase_if(plans, [](const auto& one) { return one.second.parts.empty(); });
  return plans;
}

std::string training_blend(const DataOptions& options) {
  BlendPlan plan;
  if (!options.data_path.empty()) plan = divided_plan(options, 0);
  if (!options.train_data_path.empty()) {
    plan = whole_plan(options.train_data_path, "train-data-path");
  }
  for (const std::string& text : options.train_weighted_split_paths) {
    plan = weighted_plan(text, "train-weighted-split-paths").second;
  }
  if (plan.parts.empty()) return "";
  std::vector<std::string> weights;
  std::vector<std::string> shares;
  if (plan.weighted && (plan.parts.size() > 1 || plan.blend_single)) {
    std::vector<double> given;
    for (const BlendPart& part : plan.parts) given.push_back(part.weight);
    for (const double weight : normalized(given)) weights.push_back(fmt::format("{:.9g}", weight));
  }
  for (const BlendPart& part : plan.parts) {
    shares.push_back(fmt::format("{:.9g}:{:.9g}", part.start, part.end));
  }
  std::string text = shares.size() == 1 ? "1 corpus" : fmt::format("{} corpora", shares.size());
  if (!weights.empty()) text += fmt::format(", weights {}", fmt::join(weights, ", "));
  const bool whole =
      std::all_of(shares.begin(), shares.end(), [](const auto& share) { return share == "0:1"; });
  if (!whole) text += fmt::format(", of each {}", fmt::join(shares, ", "));
  return text;
}

std::vector<std::pair<std::int64_t, std::int64_t>> split_bounds(const std::string& split,
                                                                std::int64_t sequences) {
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  for (const auto& [start, end] : share_bounds(split))
    bounds.push_back(bounds_of(start, end, sequences));
  return bounds;
}

BlendPlan plan_of_epochs(const DataOptions& options) {
  BlendPlan plan;
  if (!options.data_path.empty()) plan = divided_plan(options, 0);
  if (!options.train_data_path.empty())
    plan = whole_plan(options.train_data_path, "train-data-path");
  const auto refuse = [](bool given, const char* what) {
    if (!given) return;
    throw Error(Fault::kUsage,
                "--num-train-epochs: {}; give --train-iters or --train-samples instead", what);
  };
  refuse(options.mock_data, "--mock-data is generated, and has no epochs");
  refuse(options.train_data_exact_num_epochs.has_value(),
         "--train-data-exact-num-epochs says how often the data is read too");
  refuse(plan.weighted || !options.train_weighted_split_paths.empty(),
         "a blend by weights reads parts of its corpora, and has no epochs");
  return plan;
}

}  // namespace piton
