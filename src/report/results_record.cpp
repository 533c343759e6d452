#include "report/results_record.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::int64_t kLargestFile = std::int64_t{1} << 32;  // bytes

OrderedJson object_in(std::string_view text, const std::string& where) {
  check_json_depth(text, where);
  OrderedJson json = read_json_or_discarded<OrderedJson>(text);
  if (!json.is_object())
    throw Error(Fault::kData, "{}: wanted an object of JSON; was it written by piton eval?", where);
  return json;
}

std::string text_in(const OrderedJson& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_array() && !found->empty() && found->back().is_string()
             ? found->back().get<std::string>()
             : found->dump();
}

std::map<std::string, std::int64_t> counts_in(const OrderedJson& json, const char* key) {
  std::map<std::string, std::int64_t> counts;
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return counts;
  for (const auto& [name, value] : found->items()) {
    if (value.is_number_integer()) counts[name] = value.get<std::int64_t>();
  }
  return counts;
}

// "acc,none": 0.5, "acc_stderr,none": 0.1 of one group.
std::map<std::string, ResultFigure> figures_in(const OrderedJson& group,
                                               const OrderedJson& better) {
  std::map<std::string, ResultFigure> figures;
  for (const auto& [key, value] : group.items()) {
    const std::size_t comma = key.find(',');
    if (comma == key.npos || !value.is_number()) continue;
    std::string metric = key.substr(0, comma);
    constexpr std::string_view kError = "_stderr";
    if (metric.ends_with(kError)) {
      metric.resize(metric.size() - kError.size());
      figures[metric + key.substr(comma)].standard_error = value.get<double>();
      continue;
    }
    ResultFigure& figure = figures[key];
    figure.value = value.get<double>();
    const auto found = better.find(metric);
    figure.higher_is_better = found == better.end() || !found->is_boolean() || found->get<bool>();
  }
  return figures;
}

// By how much the likeliest wrong choice is likelier than the likeliest right one; of rewards, by
// how much the worse answer has more.
double margin_of(const OrderedJson& line) {
  auto values = line.find("log_likelihoods");
  if (values == line.end()) values = line.find("rewards");
  const auto gold = line.find("gold");
  if (values == line.end() || gold == line.end() || !values->is_array() || !gold->is_array() ||
      values->size() < 2)
    return 0;
  double right = -HUGE_VAL;
  double wrong = -HUGE_VAL;
  for (std::size_t i = 0; i < values->size(); ++i) {
    if (!(*values)[i].is_number()) return 0;
    const bool is_gold = std::find(gold->begin(), gold->end(), OrderedJson(i)) != gold->end();
    double& most = is_gold ? right : wrong;
    most = std::max(most, (*values)[i].get<double>());
  }
  return std::isfinite(wrong - right) ? wrong - right : 0;
}

AnsweredQuestion question_in(const OrderedJson& line) {
  AnsweredQuestion question{.id = text_in(line, "subject") + " " + text_in(line, "index"),
                            .prompt = text_in(line, "prompt"),
                            .answer = text_in(line, "answer"),
                            .gold = line.contains("gold") ? line["gold"].dump() : "",
                            .margin = margin_of(line)};
  if (line.contains("gold") && line["gold"].is_string()) question.gold = text_in(line, "gold");
  // Right choices by their texts.
  const auto choices = line.find("continuations");
  if (line.contains("gold") && line["gold"].is_array() && choices != line.end() &&
      choices->is_array()) {
    question.gold.clear();
    for (const auto& index : line["gold"]) {
      const bool fits = index.is_number_unsigned() && index < choices->size();
      if (!fits || !(*choices)[index.get<std::size_t>()].is_string()) continue;
      question.gold += (question.gold.empty() ? "" : " | ") +
                       (*choices)[index.get<std::size_t>()].get<std::string>();
    }
  }
  const auto correct = line.find("correct");
  question.correct = correct != line.end() && correct->is_boolean() && correct->get<bool>();
  const auto metrics = line.find("metrics");
  if (metrics == line.end() || !metrics->is_object()) return question;
  for (const auto& [name, value] : metrics->items()) {
    if (value.is_number()) question.metrics[name] = value.get<double>();
  }
  return question;
}

}  // namespace

bool has_results(const fs::path& folder) { return fs::is_regular_file(folder / "results.json"); }

ResultsRecord read_results(const fs::path& folder) {
  const fs::path file = folder / "results.json";
  if (!has_results(folder)) {
    throw Error(Fault::kData,
                "{}: no results.json is in it; wanted the folder of piton eval --save-results",
                folder.string());
  }
  const OrderedJson json = object_in(read_regular_file(file, kLargestFile), file.string());
  if (!json.contains("results") || !json["results"].is_object())
    throw Error(Fault::kData, "{}: has no \"results\"; was it written by piton eval?",
                file.string());
  const fs::path whole = fs::absolute(folder / "").lexically_normal().parent_path();
  ResultsRecord record{.name = whole.filename().string(), .model = text_in(json, "model_name")};
  record.samples = counts_in(json, "n-samples");
  record.shots = counts_in(json, "n-shot");
  const OrderedJson better = json.value("higher_is_better", OrderedJson::object());
  for (const auto& [name, group] : json["results"].items()) {
    if (!group.is_object()) continue;
    record.groups.emplace_back(name, figures_in(group, better.value(name, OrderedJson::object())));
  }
  const OrderedJson configs = json.value("configs", OrderedJson::object());
  for (const auto& [task, config] : configs.items()) {
    const fs::path lines = folder / (task + ".jsonl");
    if (!fs::exists(lines)) continue;
    TaskResults& results = record.tasks[task];
    if (config.is_object()) results.prompt_hash = text_in(config, "prompt_hash");
    std::istringstream stream(read_regular_file(lines, kLargestFile));
    std::int64_t number = 0;
    for (std::string line; std::getline(stream, line);)
      results.questions.push_back(
          question_in(object_in(line, fmt::format("{}:{}", lines.string(), ++number))));
  }
  return record;
}

PairedDifference paired_difference(const TaskResults& a, const TaskResults& b,
                                   const std::string& metric) {
  std::map<std::string, double> values;
  for (const AnsweredQuestion& one : a.questions) {
    const auto found = one.metrics.find(metric);
    if (found != one.metrics.end()) values[one.id] = found->second;
  }
  PairedDifference paired;
  double sum = 0;
  double squares = 0;
  for (const AnsweredQuestion& one : b.questions) {
    const auto found = one.metrics.find(metric);
    const auto other = values.find(one.id);
    if (found == one.metrics.end() || other == values.end()) continue;
    const double difference = found->second - other->second;
    ++paired.questions;
    if (difference > 0) ++paired.better;
    if (difference < 0) ++paired.worse;
    sum += difference;
    squares += difference * difference;
  }
  if (paired.questions == 0) return paired;
  const auto n = static_cast<double>(paired.questions);
  paired.mean = sum / n;
  if (paired.questions > 1)
    paired.standard_error =
        std::sqrt(std::max(0.0, squares / n - paired.mean * paired.mean) / (n - 1));
  return paired;
}

}  // namespace piton
