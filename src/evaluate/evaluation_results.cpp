#include "evaluate/evaluation_results.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tasks/subjects.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string line_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

// Some of the samples of a task: their scores and subjects.
struct Selection {
  std::vector<const SampleScore*> scores;
  std::vector<std::string> subjects;
  void add(const SampleScore& score, const std::string& subject) {
    scores.push_back(&score);
    subjects.push_back(subject);
  }
};

void add_metrics(const GroupScore& group, OrderedJson& results, OrderedJson& better) {
  OrderedJson& out = results[group.name];
  for (const MetricValue& value : group.values) {
    out[value.metric + "," + value.filter] = value.value;
    if (value.standard_error)
      out[value.metric + "_stderr," + value.filter] = *value.standard_error;
    else
      out[value.metric + "_stderr," + value.filter] = "N/A";
    better[group.name][value.metric] = value.higher_is_better;
  }
}

// A mean of accuracies with weights.
struct WeightedMean {
  double sum = 0;
  double weights = 0;
  double value() const { return sum / weights; }
};

// Adds `score` to the sections of RewardBench that have pairs, and to the task if all four have.
// rewardbench/utils.py of RewardBench 0.1.4, calculate_scores_per_section.
void add_section_scores(const std::string& task, std::vector<GroupScore>& scores,
                        const std::set<std::string>& subjects) {
  constexpr std::size_t kSections = 4;
  std::map<std::string, WeightedMean> sections;
  for (const std::string& subject : subjects) {
    const auto weight = static_cast<double>(subject_weight(task, subject));
    if (weight == 0) continue;
    const auto own = std::find_if(scores.begin(), scores.end(), [&](const GroupScore& score) {
      return score.name == task + "_" + subject;
    });
    WeightedMean& mean = sections[task + "_" + std::string(subject_group(task, subject))];
    mean.sum += weight * own->values.front().value;
    mean.weights += weight;
  }
  double sum = 0;
  for (GroupScore& score : scores) {
    const auto found = sections.find(score.name);
    if (found == sections.end()) continue;
    score.values.push_back({.metric = "score", .filter = "none", .value = found->second.value()});
    sum += found->second.value();
  }
  if (sections.size() == kSections)
    scores.front().values.push_back(
        {.metric = "score", .filter = "none", .value = sum / kSections});
}

// What is known before the evaluation.
OrderedJson settings_of(const PlannedTask& planned) {
  const TaskData& data = planned.data;
  OrderedJson config = {{"protocol", name(data.task.protocol)},
                        {"num_fewshot", data.num_shots},
                        {"random_shots", data.task.random_shots && data.num_shots > 0},
                        {"special_tokens", planned.reading.adds_special_tokens},
                        {"longest_sequence", planned.reading.longest_sequence},
                        {"chat_template", data.is_chat}};
  if (data.task.kind == TaskKind::kPerplexity)
    config["overlapping_eval"] = planned.reading.overlapping_eval;
  if (!data.task.variant.empty()) config["variant"] = data.task.variant;
  // The examples, where all questions of a subject have the same; else they are with the samples.
  std::map<std::string, std::vector<std::int64_t>> shots;
  for (const TaskSample& sample : data.samples) shots.try_emplace(sample.subject, sample.shots);
  if (!data.task.random_shots) {
    for (const auto& [subject, ids] : shots)
      config["few_shot_ids"][subject.empty() ? data.task.name : subject] = ids;
  }
  if (!data.task.shot_texts.empty() && data.num_shots > 0)
    config["few_shot_texts"] = data.task.shot_texts;
  if (data.task.max_new_tokens > 0) config["max_new_tokens"] = data.task.max_new_tokens;
  if (!data.task.reasoning_end.empty()) config["think_end_token"] = data.task.reasoning_end;
  const AnswerSampling& sampling = planned.sampling;
  if (sampling.draws()) {
    config["num_samples"] = sampling.answers;
    config["temperature"] = sampling.temperature;
    config["top_k"] = sampling.top_k;
    config["top_p"] = sampling.top_p;
    config["seed"] = sampling.seed;
  }
  config["prompt_hash"] = data.prompt_hash;  // last: the others say what makes it differ
  return config;
}

OrderedJson config_of(const TaskEvaluation& evaluation) {
  OrderedJson config = settings_of({evaluation.data, evaluation.reading, evaluation.sampling});
  config["cut_prompts"] = evaluation.cut_prompts;
  config["empty_answers"] = evaluation.empty_answers;
  return config;
}

std::string text_in(const OrderedJson& object, const char* field) {
  const auto found = object.find(field);
  return found == object.end() || !found->is_string() ? "" : found->get<std::string>();
}

// Which model results are of, if it is another one.
std::string other_model(const OrderedJson& found, const EvaluatedSource& source) {
  const std::string model = text_in(found, "model_name");
  if (text_in(found, "model_hash") != source.model_hash)
    return model == source.model
               ? fmt::format("of other weights of {}", model)
               : fmt::format("of another model, {}; this one is {}", model, source.model);
  const std::string adapters = text_in(found, "adapters_hash");
  if (adapters != source.adapters_hash)
    return fmt::format("of {} {} adapters", model,
                       adapters.empty()               ? "without"
                       : source.adapters_hash.empty() ? "with"
                                                      : "with other");
  if (text_in(found, "tokenizer_hash") != source.tokenizer) return "of another tokenizer";
  return "";
}

// The first setting of a task that differs, of those that results have.
std::string other_setting(const OrderedJson& found, const OrderedJson& wanted) {
  OrderedJson all = wanted;
  for (const auto& [key, value] : found.items()) {
    const bool measured = key == "cut_prompts" || key == "empty_answers";
    if (!measured && !all.contains(key)) all[key] = value;
  }
  const auto shown = [](const OrderedJson& config, const std::string& key) {
    if (!config.contains(key)) return std::string("not set");
    return config[key].is_structured() ? "other ones" : config[key].dump();
  };
  for (const auto& [key, value] : all.items()) {
    if (found.contains(key) && wanted.contains(key) && found[key] == wanted[key]) continue;
    if (key == "prompt_hash") return "other questions or prompts";
    return fmt::format("{}: {}, here {}", key, shown(found, key), shown(wanted, key));
  }
  return "";
}

}  // namespace

std::vector<GroupScore> scores_of(const TaskEvaluation& evaluation) {
  const std::string& task = evaluation.data.task.name;
  Selection all;
  std::map<std::string, Selection> groups;
  std::map<std::string, Selection> subjects;
  for (std::size_t i = 0; i < evaluation.scores.size(); ++i) {
    const std::string& subject = evaluation.data.samples[i].subject;
    const SampleScore& score = evaluation.scores[i];
    all.add(score, subject);
    if (subject.empty()) continue;
    subjects[subject].add(score, subject);
    const std::string group(subject_group(task, subject));
    if (!group.empty()) groups[group].add(score, subject);
  }
  std::vector<GroupScore> scores = {group_score(task, all.scores, all.subjects)};
  for (const auto* some : {&groups, &subjects}) {
    for (const auto& [name, selection] : *some)
      scores.push_back(group_score(task + "_" + name, selection.scores, selection.subjects));
  }
  std::set<std::string> names;
  for (const auto& [name, selection] : subjects) names.insert(name);
  add_section_scores(task, scores, names);
  return scores;
}

std::string results_table(const std::vector<TaskEvaluation>& evaluations) {
  std::string table =
      "|Tasks|Protocol|Filter|n-shot|Metric| |Value| |Stderr|Samples|\n"
      "|---|---|---|---:|---|---|---:|---|---:|---:|\n";
  for (const TaskEvaluation& evaluation : evaluations) {
    const TaskData& data = evaluation.data;
    for (const GroupScore& group : scores_of(evaluation)) {
      for (const MetricValue& value : group.values) {
        table += fmt::format(
            "|{}{}|{}|{}|{}|{}|{}|{:.4f}|±|{}|{}|\n", group.name == data.task.name ? "" : " - ",
            group.name, name(data.task.protocol), value.filter, data.num_shots, value.metric,
            value.higher_is_better ? "↑" : "↓", value.value,
            value.standard_error ? fmt::format("{:.4f}", *value.standard_error) : "N/A",
            group.samples);
      }
    }
  }
  return table;
}

OrderedJson results_json(const std::vector<TaskEvaluation>& evaluations,
                         const EvaluatedSource& source) {
  OrderedJson out = {
      {"results", OrderedJson::object()},   {"groups", OrderedJson::object()},
      {"configs", OrderedJson::object()},   {"n-shot", OrderedJson::object()},
      {"n-samples", OrderedJson::object()}, {"higher_is_better", OrderedJson::object()},
      {"model_name", source.model},         {"model_hash", source.model_hash},
      {"tokenizer_hash", source.tokenizer}, {"piton_version", source.version}};
  if (!source.adapters_hash.empty()) out["adapters_hash"] = source.adapters_hash;
  for (const TaskEvaluation& evaluation : evaluations) {
    const TaskData& data = evaluation.data;
    std::set<std::string> subjects;
    for (const TaskSample& sample : data.samples)
      subjects.insert(data.task.name + "_" + sample.subject);
    for (const GroupScore& group : scores_of(evaluation)) {
      add_metrics(group, out["results"], out["higher_is_better"]);
      out["n-samples"][group.name] = group.samples;
      out["n-shot"][group.name] = data.num_shots;
      const bool grouped = data.task.has_subjects || !data.task.subject_field.empty();
      if (grouped && !subjects.contains(group.name))
        out["groups"][group.name] = out["results"][group.name];
    }
    out["configs"][data.task.name] = config_of(evaluation);
    if (evaluation.distinct_tokens > 0) {
      out["computation"][data.task.name] = {{"computed_tokens", evaluation.computed_tokens},
                                            {"distinct_tokens", evaluation.distinct_tokens}};
    }
  }
  return out;
}

std::string other_results(const std::string& text, const std::vector<PlannedTask>& planned,
                          const EvaluatedSource& source) {
  const auto found = read_json_or_discarded<OrderedJson>(text);
  if (!found.is_object() || !found.contains("configs") || !found["configs"].is_object())
    return "not of piton eval";
  std::string other = other_model(found, source);
  if (!other.empty()) return other;
  const OrderedJson& configs = found["configs"];
  std::set<std::string> names;
  for (const PlannedTask& task : planned) {
    const std::string& name = task.data.task.name;
    names.insert(name);
    if (!configs.contains(name)) continue;
    other = other_setting(configs[name], settings_of(task));
    if (!other.empty()) return fmt::format("of {} with {}", name, other);
  }
  for (const auto& [name, config] : configs.items()) {
    if (!names.contains(name)) return fmt::format("of {} too, which is not evaluated now", name);
  }
  return "";
}

std::string sample_lines(const TaskEvaluation& evaluation) {
  const TaskData& data = evaluation.data;
  std::string lines;
  for (std::size_t i = 0; i < data.samples.size(); ++i) {
    const TaskSample& sample = data.samples[i];
    const SampleResponse& response = evaluation.responses[i];
    const SampleScore& score = evaluation.scores[i];
    OrderedJson line = {{"id", i}, {"subject", sample.subject}, {"index", sample.index}};
    if (sample.contexts.size() == 1)
      line["prompt"] = sample.contexts.front();
    else
      line["prompt"] = sample.contexts;
    if (evaluation.cut_samples.contains(i)) line["cut"] = true;
    if (!sample.continuations.empty()) line["continuations"] = sample.continuations;
    if (!response.texts.empty()) {
      line["texts"] = response.texts;
      line["verdicts"] = response.verdicts;
    } else if (data.task.kind == TaskKind::kGeneration) {
      line["text"] = response.text;
    } else {
      line[data.task.kind == TaskKind::kPreference ? "rewards" : "log_likelihoods"] =
          response.log_likelihoods;
    }
    if (!sample.gold.empty())
      line["gold"] = sample.gold;
    else if (data.task.kind == TaskKind::kGeneration)
      line["gold"] = sample.answer;
    if (!sample.code.entry_point.empty()) line["entry_point"] = sample.code.entry_point;
    line["answer"] = score.answer;
    line["correct"] = score.correct;
    if (!sample.shots.empty()) line["shots"] = sample.shots;
    for (const SampleMetric& metric : score.metrics)
      line["metrics"][metric.metric + "," + metric.filter] = metric.value;
    lines += line_of(line);
  }
  return lines;
}

}  // namespace piton
