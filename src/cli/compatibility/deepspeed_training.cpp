// The keys "optimizer" and "scheduler" of DeepSpeed's configuration.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/compatibility/deepspeed_config.h"
#include "cli/compatibility/deepspeed_values.h"

namespace piton::cli {

using deepspeed::got;
using deepspeed::is_auto;
using deepspeed::is_count;
using nlohmann::json;

void DeepSpeedConfig::read_optimizer(const json& optimizer) {
  const std::string where = "optimizer";
  const auto wrong = [&](const std::string& key, const std::string& what) {
    mistakes_.push_back(fmt::format("--deepspeed_config: {}: {}: {}", file_, key, what));
  };
  if (!optimizer.is_object()) return wrong(where, got(optimizer, "an object"));
  const json type = optimizer.value("type", json());
  const bool sgd = type == "SGD" || type == "sgd";
  const bool adam = type == "Adam" || type == "AdamW" || type == "adam" || type == "adamw";
  if (!sgd && !adam) wrong(where + ".type", got(type, "\"Adam\", \"AdamW\" or \"SGD\""));
  mean(where + ".type", "optimizer", sgd ? "sgd" : "adam");
  for (const auto& [name, value] : optimizer.items()) {
    if (name == "type" || name == "params") continue;
    if (name == "legacy_fusion" && value == false) continue;
    wrong(where + "." + name, "unknown; wanted type and params");
  }
  const json params = optimizer.value("params", json::object());
  if (!params.is_object()) return wrong(where + ".params", got(params, "an object"));
  for (const auto& [name, value] : params.items()) {
    const std::string key = where + ".params." + name;
    const bool automatic = is_auto(value);
    const bool number = is_count(value) || automatic;
    if (name == "lr" || name == "weight_decay" || (adam && name == "eps") ||
        (sgd && name == "momentum")) {
      if (!number) wrong(key, got(value, "a number from 0 up, or \"auto\""));
      if (automatic || !number) continue;
      mean(key,
           name == "lr"         ? "lr"
           : name == "eps"      ? "adam-eps"
           : name == "momentum" ? "sgd-momentum"
                                : "weight-decay",
           value.dump());
    } else if (adam && name == "betas") {
      if (automatic) continue;
      if (!value.is_array() || value.size() != 2 || !is_count(value[0]) || !is_count(value[1])) {
        wrong(key, got(value, "two numbers, or \"auto\""));
        continue;
      }
      mean(key, "adam-beta1", value[0].dump());
      mean(key, "adam-beta2", value[1].dump());
    } else if (adam && (name == "adam_w_mode" || name == "bias_correction")) {
      if (value != true) wrong(key, got(value, "true: there is nothing else here"));
    } else if (adam && (name == "amsgrad" || name == "torch_adam" || name == "fused")) {
      const bool any = name != "amsgrad" && value.is_boolean();
      if (!any && value != false) wrong(key, got(value, "false"));
    } else {
      wrong(key, "unknown; wanted lr, weight_decay" +
                     std::string(adam ? ", betas, eps, adam_w_mode" : ", momentum"));
    }
  }
}

// deepspeed/runtime/lr_schedules.py, of 0.9.2 to 0.15. A rate is that of the schedule's iteration;
// the first one is 0, as here.
void DeepSpeedConfig::read_scheduler(const json& scheduler) {
  const auto wrong = [&](const std::string& key, const std::string& what) {
    mistakes_.push_back(fmt::format("--deepspeed_config: {}: scheduler{}: {}", file_, key, what));
  };
  if (!scheduler.is_object()) return wrong("", got(scheduler, "an object"));
  for (const auto& [name, value] : scheduler.items()) {
    if (name != "type" && name != "params") wrong("." + name, "unknown; wanted type and params");
  }
  const json type = scheduler.value("type", json());
  const bool decays = type == "WarmupDecayLR";
  if (type == "WarmupCosineLR") {
    return wrong(
        ".type",
        "got \"WarmupCosineLR\", whose cosine begins one step late; leave it out, and give "
        "--lr-decay-style cosine, --lr-warmup-iters, --lr-decay-iters and --min-lr");
  }
  if (!decays && type != "WarmupLR") {
    return wrong(".type", got(type,
                              "\"WarmupLR\" or \"WarmupDecayLR\"; see --lr-decay-style for "
                              "others"));
  }
  const json params = scheduler.value("params", json::object());
  if (!params.is_object()) return wrong(".params", got(params, "an object"));
  mean("scheduler.type", "lr-decay-style", decays ? "linear" : "constant");
  std::vector<std::string> known{"warmup_min_lr", "warmup_max_lr", "warmup_num_steps",
                                 "warmup_type", "last_batch_iteration"};
  if (decays) known.emplace_back("total_num_steps");
  for (const auto& [name, value] : params.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string near = nearest_name(name, known);
    wrong(".params." + name, near.empty()
                                 ? fmt::format("unknown; wanted {}", fmt::join(known, ", "))
                                 : fmt::format("unknown; did you mean {}?", near));
  }
  const auto value_of = [&](const char* name, json otherwise) {
    return params.value(name, std::move(otherwise));
  };
  const json lowest = value_of("warmup_min_lr", 0);
  if (!is_auto(lowest) && lowest != 0)
    wrong(".params.warmup_min_lr", got(lowest, "0, where a warm-up begins"));
  if (decays) mean("scheduler.params.warmup_min_lr", "min-lr", "0");
  const json highest = value_of("warmup_max_lr", 0.001);
  if (!is_auto(highest)) {
    if (!is_count(highest)) wrong(".params.warmup_max_lr", got(highest, "a number, or \"auto\""));
    // The schedule sets the rate, whatever the optimizer began with.
    std::erase_if(meant_, [](const Meant& one) { return one.key == "optimizer.params.lr"; });
    mean("scheduler.params.warmup_max_lr", "lr", highest.dump());
  }
  const json shape = value_of("warmup_type", "log");
  if (shape != "linear") {
    wrong(
        ".params.warmup_type",
        params.contains("warmup_type")
            ? got(shape, "\"linear\": there is no other warm-up here")
            : "is \"log\" where it is left out; wanted \"linear\": there is no other warm-up here");
  }
  const json last = value_of("last_batch_iteration", -1);
  if (last != -1) wrong(".params.last_batch_iteration", got(last, "-1; --load continues a run"));
  // `least`: what the schedule makes of smaller numbers.
  const auto mean_steps = [&](const char* name, const json& steps, const char* flag, double least) {
    if (is_auto(steps)) return;
    const bool whole =
        is_count(steps) && std::floor(steps.get<double>()) == steps && steps.get<double>() <= 1e15;
    if (!whole)
      return wrong(std::string(".params.") + name,
                   got(steps, "a whole number from 0 up, or \"auto\""));
    mean(std::string("scheduler.params.") + name, flag,
         std::to_string(static_cast<std::int64_t>(std::max(least, steps.get<double>()))));
  };
  mean_steps("warmup_num_steps", value_of("warmup_num_steps", 1000), "lr-warmup-iters", 2);
  if (!decays) return;
  if (!params.contains("total_num_steps")) {
    return wrong(".params.total_num_steps", "is not there; WarmupDecayLR needs it");
  }
  mean_steps("total_num_steps", params.at("total_num_steps"), "lr-decay-iters", 0);
}

}  // namespace piton::cli
