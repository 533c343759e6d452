#include "cli/compatibility/deepspeed_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "cli/compatibility/deepspeed_values.h"

namespace piton::cli {
namespace {

using deepspeed::got;
using deepspeed::is_auto;
using deepspeed::is_count;
using nlohmann::json;

enum class KeyKind : std::uint8_t {
  kNumber,    // an option
  kWhole,     // an option
  kAnyFlag,   // true or false, without effect here
  kAnyCount,  // 0 or more, without effect here
  kOnly,      // the note has the values that are so anyway, as JSON
  kOwn,       // read by code
};

struct KnownKey {
  std::string_view path;
  KeyKind kind;
  const char* flag = "";  // or the values, or what to do instead
};

constexpr const char* kOff = "false";

constexpr KnownKey kKeys[] = {
    {"train_batch_size", KeyKind::kWhole, "global-batch-size"},
    {"train_micro_batch_size_per_gpu", KeyKind::kWhole, "micro-batch-size"},
    {"gradient_accumulation_steps", KeyKind::kOwn},
    {"gradient_clipping", KeyKind::kNumber, "clip-grad"},
    {"steps_per_print", KeyKind::kAnyCount},
    {"wall_clock_breakdown", KeyKind::kAnyFlag},
    {"memory_breakdown", KeyKind::kAnyFlag},
    {"dump_state", KeyKind::kAnyFlag},
    {"zero_allow_untested_optimizer", KeyKind::kAnyFlag},
    {"zero_force_ds_cpu_optimizer", KeyKind::kAnyFlag},
    {"prescale_gradients", KeyKind::kAnyFlag},
    {"gradient_predivide_factor", KeyKind::kAnyCount},
    {"fp32_allreduce", KeyKind::kAnyFlag},
    {"communication_data_type", KeyKind::kOnly, "\"fp32\" null"},
    {"data_types.grad_accum_dtype", KeyKind::kOnly, "\"fp32\" null"},
    {"sparse_gradients", KeyKind::kOnly, kOff},
    {"amp.enabled", KeyKind::kOnly, kOff},
    {"flops_profiler.enabled", KeyKind::kOnly, kOff},
    {"tensorboard.enabled", KeyKind::kOnly, kOff},
    {"wandb.enabled", KeyKind::kOnly, kOff},
    {"csv_monitor.enabled", KeyKind::kOnly, kOff},
    {"comms_logger.enabled", KeyKind::kOnly, kOff},
    {"elasticity.enabled", KeyKind::kOnly, kOff},
    {"fp16.enabled", KeyKind::kOwn},
    {"fp16.auto_cast", KeyKind::kOnly, kOff},
    {"fp16.loss_scale", KeyKind::kOwn},
    {"fp16.loss_scale_window", KeyKind::kWhole, "loss-scale-window"},
    {"fp16.initial_scale_power", KeyKind::kOwn},
    {"fp16.hysteresis", KeyKind::kWhole, "hysteresis"},
    {"fp16.consecutive_hysteresis", KeyKind::kOnly, kOff},
    {"fp16.min_loss_scale", KeyKind::kNumber, "min-loss-scale"},
    {"bf16.enabled", KeyKind::kOwn},
    {"bf16.immediate_grad_update", KeyKind::kAnyFlag},
    {"bfloat16.enabled", KeyKind::kOwn},
    {"optimizer", KeyKind::kOwn},
    {"scheduler", KeyKind::kOwn},
    {"zero_optimization.stage", KeyKind::kWhole, "zero-stage"},
    {"zero_optimization.allgather_partitions", KeyKind::kAnyFlag},
    {"zero_optimization.allgather_bucket_size", KeyKind::kAnyCount},
    {"zero_optimization.reduce_bucket_size", KeyKind::kAnyCount},
    {"zero_optimization.overlap_comm", KeyKind::kAnyFlag},
    {"zero_optimization.reduce_scatter", KeyKind::kAnyFlag},
    {"zero_optimization.contiguous_gradients", KeyKind::kAnyFlag},
    {"zero_optimization.round_robin_gradients", KeyKind::kAnyFlag},
    {"zero_optimization.load_from_fp32_weights", KeyKind::kAnyFlag},
    {"zero_optimization.elastic_checkpoint", KeyKind::kAnyFlag},
    {"zero_optimization.ignore_unused_parameters", KeyKind::kAnyFlag},
    {"zero_optimization.sub_group_size", KeyKind::kAnyCount},
    {"zero_optimization.stage3_prefetch_bucket_size", KeyKind::kAnyCount},
    {"zero_optimization.stage3_param_persistence_threshold", KeyKind::kAnyCount},
    {"zero_optimization.stage3_max_live_parameters", KeyKind::kAnyCount},
    {"zero_optimization.stage3_max_reuse_distance", KeyKind::kAnyCount},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", KeyKind::kAnyFlag},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", KeyKind::kAnyFlag},
    {"zero_optimization.zero_hpz_partition_size", KeyKind::kOnly, "1"},
    {"zero_optimization.zero_quantized_weights", KeyKind::kOnly, kOff},
    {"zero_optimization.zero_quantized_gradients", KeyKind::kOnly, kOff},
    {"zero_optimization.mics_shard_size", KeyKind::kOnly, "-1"},
    {"zero_optimization.cpu_offload", KeyKind::kOwn},
    {"zero_optimization.offload_optimizer", KeyKind::kOwn},
    {"zero_optimization.offload_param", KeyKind::kOwn},
    {"activation_checkpointing.partition_activations", KeyKind::kOnly, kOff},
    {"activation_checkpointing.cpu_checkpointing", KeyKind::kOnly, kOff},
    {"activation_checkpointing.contiguous_memory_optimization", KeyKind::kAnyFlag},
    {"activation_checkpointing.synchronize_checkpoint_boundary", KeyKind::kAnyFlag},
    {"activation_checkpointing.number_checkpoints", KeyKind::kOnly, "null"},
    {"activation_checkpointing.profile", KeyKind::kAnyFlag},
};

const KnownKey* find_key(const std::string& path) {
  const auto found = std::ranges::find(kKeys, path, &KnownKey::path);
  return found == std::end(kKeys) ? nullptr : &*found;
}

bool has_keys_below(const std::string& path) {
  return std::ranges::any_of(kKeys,
                             [&](const KnownKey& key) { return key.path.starts_with(path + "."); });
}

bool is_true(const std::string& literal) { return literal == "true"; }

// Whether two values of an option are the same: TOML literals, or numbers of JSON.
bool same_values(const std::string& a, const std::string& b) {
  if (a == b || a == '"' + b + '"') return true;
  char* end_of_a = nullptr;
  char* end_of_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_of_a);
  const double y = std::strtod(b.c_str(), &end_of_b);
  return !a.empty() && !b.empty() && *end_of_a == 0 && *end_of_b == 0 && x == y;
}

// The TOML literal of an option; "" for one that is not set.
std::string value_in(const OptionSet& set, const std::string& flag) {
  for (const auto& [name, value] : set.values()) {
    if (name == flag) return value;
  }
  return "";
}

std::int64_t whole_in(const OptionSet& set, const std::string& flag) {
  const std::string text = value_in(set, flag);
  return text.empty() ? 0 : std::stoll(text);
}

}  // namespace

DeepSpeedConfig::DeepSpeedConfig(const std::filesystem::path& file) : file_(file.string()) {
  const std::string text = read_text_file(file, std::int64_t{1} << 20);
  json all;
  try {
    all = read_json<json>(text);
  } catch (const json::parse_error& error) {
    throw Error(Fault::kUsage, "--deepspeed_config: {}: not JSON: {}", file_, error.what());
  }
  if (!all.is_object()) {
    throw Error(Fault::kUsage, "--deepspeed_config: {}: {}", file_, got(all, "an object"));
  }
  derives_micro_batch_ = !all.contains("train_micro_batch_size_per_gpu");
  fp16_ = false;
  read(all, "");
  throw_all(mistakes_);
}

void DeepSpeedConfig::mean(const std::string& key, const char* flag, const std::string& value) {
  meant_.push_back({key, flag, value});
}

void DeepSpeedConfig::read(const json& object, const std::string& path) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = path.empty() ? name : path + "." + name;
    const auto mistake = [&](const std::string& what) {
      mistakes_.push_back(fmt::format("--deepspeed_config: {}: {}: {}", file_, key, what));
    };
    const KnownKey* known = find_key(key);
    if (known == nullptr && has_keys_below(key)) {
      if (value.is_object()) {
        read(value, key);
      } else {
        mistake(got(value, "an object"));
      }
      continue;
    }
    if (known == nullptr) {
      std::vector<std::string> others;  // keys of the same object
      const std::size_t begin = path.empty() ? 0 : path.size() + 1;
      for (const KnownKey& one : kKeys) {
        if (one.path.starts_with(path))
          others.emplace_back(one.path.substr(0, one.path.find('.', begin)));
      }
      const std::string near = nearest_name(key, others);
      mistake(near.empty()
                  ? "no key that is known here; leave it out, and see piton pretrain --help for "
                    "a flag"
                  : fmt::format("unknown; did you mean {}?", near));
      continue;
    }
    try {
      read_value(value, key);
    } catch (const Error& error) {
      mistake(error.what());
    }
  }
}

// Throws Error with what is wrong.
void DeepSpeedConfig::read_value(const json& value, const std::string& path) {
  const KnownKey& known = *find_key(path);
  const auto expect = [&](bool is_so, std::string_view wanted) {
    if (!is_so) throw Error(Fault::kUsage, "{}", got(value, wanted));
  };
  const bool automatic = is_auto(value);
  switch (known.kind) {
    case KeyKind::kNumber:
      if (automatic) return;
      expect(is_count(value), "a number from 0 up, or \"auto\"");
      return mean(path, known.flag, value.dump());
    case KeyKind::kWhole:
      if (automatic) return;
      expect(value.is_number() && is_count(value) && std::floor(value.get<double>()) == value &&
                 value.get<double>() <= 1e15,
             "a whole number from 0 up, or \"auto\"");
      return mean(path, known.flag, std::to_string(static_cast<std::int64_t>(value.get<double>())));
    case KeyKind::kAnyFlag:
      return expect(value.is_boolean() || automatic, "true or false");
    case KeyKind::kAnyCount:
      return expect(is_count(value) || automatic, "a number from 0 up");
    case KeyKind::kOnly: {
      const std::string so = fmt::format(" {} ", known.flag);
      return expect(so.find(" " + value.dump() + " ") != std::string::npos,
                    fmt::format("{}: there is nothing else here", known.flag));
    }
    case KeyKind::kOwn:
      break;
  }
  if (path == "gradient_accumulation_steps") {
    if (automatic) return;
    expect(value.is_number_integer() && value >= 1 && value <= std::int64_t{1} << 31,
           "a whole number from 1 up, or \"auto\"");
    accumulation_ = value.get<std::int64_t>();
  } else if (path == "fp16.enabled") {
    expect(value.is_boolean() || automatic, "true, false or \"auto\"");
    if (automatic) {
      fp16_.reset();
    } else {
      fp16_ = value.get<bool>();
      mean(path, "fp16", value.dump());
    }
  } else if (path == "bf16.enabled" || path == "bfloat16.enabled") {
    expect(value.is_boolean() || automatic, "true, false or \"auto\"");
    if (!automatic) mean(path, "bf16", value.dump());
  } else if (path == "fp16.loss_scale") {
    if (automatic) return;
    expect(is_count(value), "a number from 0 up (0: dynamic), or \"auto\"");
    if (value != 0) mean(path, "loss-scale", value.dump());
  } else if (path == "fp16.initial_scale_power") {
    if (automatic) return;
    expect(is_count(value) && value <= 60, "a number from 0 to 60, or \"auto\"");
    mean(path, "initial-loss-scale", fmt::format("{}", std::exp2(value.get<double>())));
  } else if (path == "zero_optimization.cpu_offload") {
    expect(value.is_boolean(), "true or false");
    if (value == true) mean(path, "cpu-optimizer", "true");
  } else if (path == "optimizer") {
    read_optimizer(value);
  } else if (path == "scheduler") {
    read_scheduler(value);
  } else {
    read_offloading(value, path);
  }
}

// offload_optimizer and offload_param.
void DeepSpeedConfig::read_offloading(const json& target, const std::string& path) {
  const auto wrong = [&](const std::string& key, const std::string& what) {
    mistakes_.push_back(fmt::format("--deepspeed_config: {}: {}: {}", file_, key, what));
  };
  if (!target.is_object()) return wrong(path, got(target, "an object"));
  const json device = target.value("device", json("none"));
  const bool of_state = path.ends_with("offload_optimizer");
  if (!of_state && device != "none") {
    wrong(path + ".device",
          got(device, "\"none\": weights stay in memory; --zero-stage 3 shards them"));
  }
  const json folder = target.value("nvme_path", json());
  if (of_state && device == "cpu") {
    mean(path + ".device", "remote-device", "cpu");
  } else if (of_state && device == "nvme") {
    if (!folder.is_string() || folder.get<std::string>().empty()) {
      wrong(path + ".nvme_path", got(folder, "the folder of the file that holds the state"));
    } else {
      mean(path + ".nvme_path", "remote-device", folder.get<std::string>());
    }
  } else if (of_state && device != "none") {
    wrong(path + ".device", got(device, "\"none\", \"cpu\" or \"nvme\""));
  }
  for (const auto& [name, value] : target.items()) {
    const std::string key = path + "." + name;
    if (name == "device" || name == "nvme_path") continue;
    const bool flag = name == "pin_memory" || name == "pipeline_read" || name == "pipeline_write" ||
                      name == "fast_init";
    const bool count = name == "buffer_count" || name == "buffer_size" || name == "max_in_cpu";
    if (flag && !value.is_boolean()) wrong(key, got(value, "true or false"));
    if (count && !is_count(value)) wrong(key, got(value, "a number from 0 up"));
    if (name == "ratio" && value != 1) wrong(key, got(value, "1: there is nothing else here"));
    if (!flag && !count && name != "ratio") wrong(key, "unknown; wanted device, nvme_path");
  }
}

void DeepSpeedConfig::apply(OptionSet& set) const {
  std::vector<std::string> mistakes;
  const std::string origin = file_;
  const bool has_fp16 = fp16_.value_or(is_true(value_in(set, "fp16")));
  if (fp16_ == false && set.given("fp16") && is_true(value_in(set, "fp16"))) {
    mistakes.push_back(fmt::format(
        "--deepspeed_config: {}: fp16.enabled is not true, but --fp16 is given; make them agree",
        file_));
  }
  for (const Meant& one : meant_) {
    const bool scales = one.key.starts_with("fp16.") && one.flag != "fp16";
    if (scales && !has_fp16) continue;  // as in DeepSpeed
    const bool off = one.value == "false";
    if (one.flag == "fp16" && off) continue;
    const std::string now = value_in(set, one.flag);
    if (!set.given(one.flag)) {
      if (off && !is_true(now)) continue;
      set.parse({fmt::format("--{}={}", one.flag, one.value)}, origin);
      continue;
    }
    if (same_values(now, one.value)) continue;
    mistakes.push_back(
        fmt::format("--deepspeed_config: {}: {} is {}, but --{} is {}; give the same, or \"auto\"",
                    file_, one.key, one.value, one.flag, now));
  }
  throw_all(mistakes);
}

void DeepSpeedConfig::settle_batch(OptionSet& set, std::int64_t data_ranks) const {
  const bool has_batch = set.given("global-batch-size");
  const bool has_micro = set.given("micro-batch-size");
  const auto take = [&](const char* flag, std::int64_t value) {
    set.parse({fmt::format("--{}={}", flag, value)}, file_);
  };
  const std::int64_t batch = whole_in(set, "global-batch-size");
  const std::int64_t micro = whole_in(set, "micro-batch-size");
  const auto refuse = [&](std::int64_t divisor, std::string_view of) {
    throw Error(Fault::kUsage,
                "--deepspeed_config: {}: train_batch_size: {} cannot be divided by {} ({})", file_,
                batch, divisor, of);
  };
  if (has_batch && !has_micro && (accumulation_ || derives_micro_batch_)) {
    const std::int64_t parts = accumulation_.value_or(1) * data_ranks;
    if (batch % parts != 0) {
      refuse(parts, fmt::format("gradient_accumulation_steps {} x {} data-parallel ranks",
                                accumulation_.value_or(1), data_ranks));
    }
    return take("micro-batch-size", batch / parts);
  }
  if (!accumulation_) return;
  const std::int64_t product = micro * *accumulation_ * data_ranks;
  if (!has_batch) return take("global-batch-size", product);
  if (batch == product) return;
  throw Error(Fault::kUsage,
              "--deepspeed_config: {}: train_batch_size is {}, but "
              "train_micro_batch_size_per_gpu {} x gradient_accumulation_steps {} x {} "
              "data-parallel ranks are {}; change one of them, or give \"auto\"",
              file_, batch, micro, *accumulation_, data_ranks, product);
}

std::optional<DeepSpeedConfig> read_deepspeed(const MegatronFlags& given, OptionSet& set,
                                              const ParallelOptions& parallel) {
  const bool asked = given.value_of("deepspeed").has_value();
  const std::optional<std::string> file = given.value_of("deepspeed_config");
  if (given.value_of("no-pipeline-parallel") && parallel.pipeline > 1) {
    throw Error(Fault::kUsage,
                "--no-pipeline-parallel: --pipeline-model-parallel-size is {}, wanted 1; leave one "
                "of them out",
                parallel.pipeline);
  }
  if (asked && !file) {
    throw Error(Fault::kUsage,
                "--deepspeed: needs --deepspeed_config FILE; without it, --zero-stage 1, 2 or 3 "
                "shards over data-parallel ranks");
  }
  if (!file) return {};
  if (!asked) {
    throw Error(Fault::kUsage, "--deepspeed_config: needs --deepspeed; give both or none");
  }
  DeepSpeedConfig config(*file);
  config.apply(set);
  return config;
}

}  // namespace piton::cli
