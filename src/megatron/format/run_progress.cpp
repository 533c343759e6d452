#include "megatron/format/run_progress.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "megatron/format/arguments.h"

namespace piton {
namespace {

using ValueKind = PickleValue::Kind;

// Flags that must not change in a run, and what fp16's loss scale goes by. Those of the model are
// compared with its tensors and arguments; those of the schedules have a separate dict.
constexpr const char* kKept[] = {"global_batch_size", "seq_length",        "seed",
                                 "optimizer",         "adam_beta1",        "adam_beta2",
                                 "adam_eps",          "clip_grad",         "hidden_dropout",
                                 "attention_dropout", "rampup_batch_size", "loss_scale"};
constexpr const char* kKeptOfHalf[] = {"initial_loss_scale", "min_loss_scale", "loss_scale_window",
                                       "hysteresis"};
// Of WSD, which the scheduler's dict does not have.
constexpr const char* kKeptOfAnnealing[] = {"lr_wsd_decay_style", "lr_wsd_decay_iters",
                                            "lr_wsd_decay_samples"};

std::string toml_text(const std::string& word) {
  std::string quoted = "\"";
  for (const char letter : word) {
    if (letter == '"' || letter == '\\') quoted += '\\';
    if (static_cast<unsigned char>(letter) >= ' ') quoted += letter;
  }
  return quoted + "\"";
}

// A TOML value; "": none of a kind that options have.
std::string toml_value(const PickleValue& value) {
  switch (value.kind) {
    case ValueKind::kInt:
      return fmt::format("{}", value.integer);
    case ValueKind::kFloat:
      return std::isfinite(value.number) ? fmt::format("{}", value.number) : "";
    case ValueKind::kText:
      return toml_text(value.text);
    case ValueKind::kList: {
      std::string list;
      for (const PickleValue* item : value.items) {
        // --rampup-batch-size is a list of words.
        const std::string one = item->kind == ValueKind::kText ? item->text : toml_value(*item);
        if (one.empty() || one.find_first_not_of("0123456789") != one.npos) return "";
        list += (list.empty() ? "" : ", ") + one;
      }
      return fmt::format("[{}]", list);
    }
    default:
      return "";
  }
}

class Values {
 public:
  Values(const PickleValue* values, std::string where)
      : values_(values), where_(std::move(where)) {}

  // Null where it is absent or None.
  const PickleValue* find(const char* name) const {
    const PickleValue* value = values_ == nullptr ? nullptr : values_->find(name);
    return value == nullptr || value->kind == ValueKind::kNone ? nullptr : value;
  }
  std::int64_t count(const char* name) const {
    const double value = number(name);
    if (!(value >= 0) || value > 0x1p53 || value != std::floor(value))
      wrong(name, "a whole number of 0 or more");
    return static_cast<std::int64_t>(value);
  }
  double number(const char* name) const {
    const PickleValue* value = find(name);
    double number = std::numeric_limits<double>::quiet_NaN();
    if (value != nullptr && value->kind == ValueKind::kInt)
      number = static_cast<double>(value->integer);
    if (value != nullptr && value->kind == ValueKind::kFloat) number = value->number;
    if (!std::isfinite(number)) wrong(name, "a number");
    return number;
  }
  std::string word(const char* name) const {
    const PickleValue* value = find(name);
    if (value == nullptr || value->kind != ValueKind::kText) wrong(name, "a word");
    return value->text;
  }
  bool truth(const char* name) const {
    const PickleValue* value = find(name);
    return value != nullptr && value->kind == ValueKind::kBool && value->truth;
  }

 private:
  [[noreturn]] void wrong(const char* name, const char* wanted) const {
    const PickleValue* value = find(name);
    const std::string got = value == nullptr ? "nothing" : toml_value(*value);
    throw Error(Fault::kData, "{}: {}: got {}, wanted {}", where_, name,
                got.empty() ? "something else" : got, wanted);
  }

  const PickleValue* values_;
  std::string where_;
};

std::string flag_of(std::string_view name) {
  std::string flag(name);
  for (char& letter : flag) letter = letter == '_' ? '-' : letter;
  return flag;
}

std::map<std::string, std::string> options_of(const Values& arguments) {
  std::map<std::string, std::string> options;
  const auto keep = [&](const auto& names) {
    for (const char* name : names) {
      const PickleValue* value = arguments.find(name);
      const std::string toml = value == nullptr ? "" : toml_value(*value);
      if (!toml.empty()) options[flag_of(name)] = toml;
    }
  };
  keep(kKept);
  keep(kKeptOfAnnealing);
  if (arguments.truth("fp16")) keep(kKeptOfHalf);
  return options;
}

}  // namespace

std::optional<MegatronSchedule> read_megatron_schedule(const PickleValue& facts,
                                                       const std::string& where) {
  const PickleValue* stored = facts.find("opt_param_scheduler");
  if (stored == nullptr) stored = facts.find("lr_scheduler");  // before 2022, and DeepSpeed's
  if (stored == nullptr || stored->kind != ValueKind::kDict) return std::nullopt;
  const Values values(stored, where + ": opt_param_scheduler");
  // Older names.
  const auto either = [&](const char* name, const char* other) {
    return values.find(name) != nullptr ? name : other;
  };
  MegatronSchedule schedule{.max_rate = values.number(either("max_lr", "start_lr")),
                            .min_rate = values.number("min_lr"),
                            .decay_style = values.word(either("lr_decay_style", "decay_style")),
                            .warmup = values.number(either("lr_warmup_steps", "warmup_steps")),
                            .decay = values.number(either("lr_decay_steps", "decay_steps")),
                            .weight_decay_increase = "constant",
                            .position = values.count(either("num_steps", "num_iters"))};
  schedule.has_weight_decay = values.find("start_wd") != nullptr;
  if (schedule.has_weight_decay) {
    schedule.start_weight_decay = values.number("start_wd");
    schedule.end_weight_decay = values.number("end_wd");
    schedule.weight_decay_increase = values.word("wd_incr_style");
    schedule.weight_decay_samples = values.number("wd_incr_steps");
  }
  return schedule;
}

MegatronRun read_megatron_run(const PickleValue& facts, const std::string& where) {
  const Values top(&facts, where);
  const Values arguments(facts.find(kMegatronArguments), where + ": args");
  MegatronRun run{.schedule = read_megatron_schedule(facts, where),
                  .options = options_of(arguments)};
  if (top.find("iteration") != nullptr) run.iteration = top.count("iteration");
  const bool counted = arguments.find("consumed_train_samples") != nullptr;
  if (counted) run.consumed_samples = arguments.count("consumed_train_samples");
  // As Megatron does where older files count iterations alone.
  if (run.consumed_samples == 0 && arguments.find("global_batch_size") != nullptr) {
    const std::int64_t batch = arguments.count("global_batch_size");
    if (__builtin_mul_overflow(run.iteration, batch, &run.consumed_samples)) {
      throw Error(Fault::kData,
                  "{}: iteration {} of global_batch_size {}: more samples than counted", where,
                  run.iteration, batch);
    }
  }
  return run;
}

void check_same_save(const TorchFile& first, const TorchFile& other) {
  for (const char* name : {"iteration", "checkpoint_version"}) {
    const PickleValue* wanted = first.root().find(name);
    const PickleValue* got = other.root().find(name);
    if (wanted == nullptr || got == nullptr || toml_value(*got) == toml_value(*wanted)) continue;
    throw Error(Fault::kData,
                "{}: {}: got {}, but {} has {}: the ranks are of different saves; copy all of one",
                other.file().path().string(), name, toml_value(*got), first.file().path().string(),
                toml_value(*wanted));
  }
}

}  // namespace piton
