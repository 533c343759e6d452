#include "train/sinks/metrics.h"

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/nesting.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: it is written as null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// Calls look(line, object) for each line of the file until it says false.
void for_each_line(const std::filesystem::path& path,
                   const std::function<bool(const std::string&, const Json&)>& look) {
  std::istringstream lines(read_regular_file(path, std::int64_t{1} << 32));
  std::string line;
  for (std::int64_t index = 1; std::getline(lines, line); ++index) {
    check_json_depth(line, path.string());
    const Json object = read_json_or_discarded<Json>(line);
    if (object.is_discarded() || !object.is_object() || !object.contains("iteration") ||
        !object["iteration"].is_number_integer()) {
      // The last line may have been cut by a crash.
      if (lines.peek() == std::istringstream::traits_type::eof()) return;
      throw Error(Fault::kData,
                  "{}:{}: not a line of metrics; move the file away to start a new one",
                  path.string(), index);
    }
    if (!look(line, object)) return;
  }
}

std::string kept_lines(const std::filesystem::path& path, std::int64_t iteration) {
  std::string kept;
  if (!std::filesystem::exists(path)) return kept;
  for_each_line(path, [&](const std::string& line, const Json& object) {
    if (object["iteration"].get<std::int64_t>() > iteration) return false;
    kept += line + "\n";
    return true;
  });
  return kept;
}

// Null or missing numbers are NaN, which JSON does not have.
double number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>()
                                                     : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t count_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// What objectives and teachers report (session/objective.h).
constexpr std::array kFigures = {"rewards_chosen",
                                 "rewards_rejected",
                                 "rewards_margin",
                                 "rewards_accuracy",
                                 "kl",
                                 "teacher_divergence",
                                 "load_balancing_loss",
                                 "z_loss",
                                 "reward",
                                 "reward_std",
                                 "reward_answer",
                                 "reward_pattern",
                                 "reward_command",
                                 "reward_model",
                                 "reward_overlong",
                                 "clip_ratio",
                                 "completion_length",
                                 "completions_truncated",
                                 "groups_without_spread",
                                 "sampling_rounds",
                                 "generation_ms",
                                 "accuracy",
                                 "micro_f1",
                                 "macro_f1",
                                 "matthews",
                                 "mse",
                                 "pearson",
                                 "spearman"};

void read_figures(const Json& object, StepMetrics& step) {
  for (const std::string name : kFigures) {
    if (object.contains(name)) step.figures.push_back({name, number_in(object, name.c_str()), 1});
    const std::string validation = "validation_" + name;
    if (object.contains(validation))
      step.validation_figures.push_back({name, number_in(object, validation.c_str()), 1});
  }
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  Json memory;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    memory[std::string(name(static_cast<MemoryKind>(kind)))] = metrics.memory.peak_bytes[kind];
  }
  memory["total"] = metrics.memory.peak_total_bytes;
  memory["offloaded"] = metrics.offloaded_bytes;
  Json json{{"iteration", metrics.iteration},
            {"consumed_samples", metrics.consumed_samples},
            {"consumed_tokens", metrics.consumed_tokens},
            {"global_batch", metrics.global_batch},
            {"lm_loss", number(metrics.lm_loss)},
            {"grad_norm", number(metrics.grad_norm)},
            {"learning_rate", metrics.learning_rate},
            {"loss_scale", metrics.loss_scale},
            {"tokens_per_second", metrics.tokens_per_second},
            {"model_tflops", metrics.model_tflops},
            {"share_of_peak", metrics.share_of_peak},
            {"elapsed_ms", metrics.elapsed_ms},
            {"skipped", metrics.skipped},
            {"memory_bytes", memory},
            {"comm_bytes",
             {{"all_reduce", metrics.traffic.all_reduce_bytes},
              {"all_gather", metrics.traffic.all_gather_bytes},
              {"reduce_scatter", metrics.traffic.reduce_scatter_bytes},
              {"broadcast", metrics.traffic.broadcast_bytes},
              {"all_to_all", metrics.traffic.all_to_all_bytes},
              {"point_to_point", metrics.traffic.point_to_point_bytes}}}};
  if (metrics.resumed) json["resumed"] = true;
  if (metrics.params_norm) json["params_norm"] = number(*metrics.params_norm);
  if (metrics.num_zeros) json["num_zeros"] = *metrics.num_zeros;
  if (metrics.validation_loss) json["validation_loss"] = number(*metrics.validation_loss);
  for (const SetLoss& one : metrics.validation_losses)
    json["validation_losses"][one.name] = number(one.loss);
  for (const PromptAnswer& one : metrics.answers)
    json["answers"].push_back({{"prompt", one.prompt}, {"answer", one.answer}});
  for (const TaskFigure& one : metrics.tasks) json["tasks"][one.name] = number(one.value);
  for (const ObjectiveFigure& one : metrics.figures) {
    if (one.count > 0) json[one.name] = number(one.mean());
  }
  for (const ObjectiveFigure& one : metrics.validation_figures) {
    if (one.count > 0) json["validation_" + one.name] = number(one.mean());
  }
  for (const TimerTimes& one : metrics.timers) json["timers_ms"][one.name] = one.most_ms();
  // Texts of a model need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<StepMetrics> read_metrics(const std::filesystem::path& path) {
  std::vector<StepMetrics> all;
  for_each_line(path, [&](const std::string&, const Json& object) {
    StepMetrics& step = all.emplace_back();
    step.iteration = object["iteration"].get<std::int64_t>();
    step.consumed_samples = count_in(object, "consumed_samples");
    step.consumed_tokens = count_in(object, "consumed_tokens");
    step.global_batch = count_in(object, "global_batch");
    step.lm_loss = number_in(object, "lm_loss");
    step.grad_norm = number_in(object, "grad_norm");
    step.learning_rate = number_in(object, "learning_rate");
    step.loss_scale = number_in(object, "loss_scale");
    step.tokens_per_second = number_in(object, "tokens_per_second");
    step.model_tflops = number_in(object, "model_tflops");
    step.share_of_peak = number_in(object, "share_of_peak");
    step.elapsed_ms = number_in(object, "elapsed_ms");
    step.skipped = count_in(object, "skipped");
    const auto memory = object.find("memory_bytes");
    if (memory != object.end() && memory->is_object()) {
      step.memory.peak_total_bytes = count_in(*memory, "total");
    }
    const auto resumed = object.find("resumed");
    step.resumed = resumed != object.end() && resumed->is_boolean() && resumed->get<bool>();
    if (object.contains("params_norm")) step.params_norm = number_in(object, "params_norm");
    if (object.contains("num_zeros")) step.num_zeros = count_in(object, "num_zeros");
    if (object.contains("validation_loss")) {
      step.validation_loss = number_in(object, "validation_loss");
    }
    const auto losses = object.find("validation_losses");
    if (losses != object.end() && losses->is_object()) {
      for (const auto& [name, _] : losses->items())
        step.validation_losses.push_back({name, number_in(*losses, name.c_str())});
    }
    read_figures(object, step);
    const auto answers = object.find("answers");
    if (answers != object.end() && answers->is_array()) {
      for (const Json& one : *answers)
        step.answers.push_back({one.value("prompt", ""), one.value("answer", "")});
    }
    const auto tasks = object.find("tasks");
    if (tasks != object.end() && tasks->is_object()) {
      for (const auto& [name, _] : tasks->items())
        step.tasks.push_back({name, number_in(*tasks, name.c_str())});
    }
    const auto timers = object.find("timers_ms");
    if (timers != object.end() && timers->is_object()) {
      for (const auto& [name, ms] : timers->items()) {
        if (ms.is_number()) step.timers.push_back({name, {ms.get<double>()}});
      }
    }
    return true;
  });
  return all;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t iteration,
                         AppendedFile::MayRestore may_restore) {
  write_text_file(path, kept_lines(path, iteration));
  lines_ = std::make_unique<AppendedFile>(path, std::move(may_restore));
}

std::string MetricsFile::write(const StepMetrics& metrics) {
  return lines_->append(to_json(metrics) + "\n");
}

}  // namespace piton
