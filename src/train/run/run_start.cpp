#include "train/run/run_start.h"

#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/files/files.h"
#include "base/shell_word.h"
#include "checkpoint/collective.h"
#include "checkpoint/read_newest.h"
#include "model_files/model_format.h"
#include "model_files/model_tokenizer.h"
#include "model_files/native_config.h"
#include "train/run/checkpoint_choice.h"
#include "train/run/foreign_model.h"
#include "train/run/run_tokenizer.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

std::string full_path(const fs::path& folder) {
  std::error_code error;
  const fs::path full = fs::weakly_canonical(fs::absolute(folder), error);
  return error ? folder.string() : (full / "").parent_path().string();  // without a last slash
}

// What an older checkpoint is where the newest one is damaged: not mentioned, named by the error,
// or taken (--allow-fallback).
enum class Older { kIgnored, kNamed, kTaken };

Older older_by(bool allow_fallback) { return allow_fallback ? Older::kTaken : Older::kNamed; }

// The checkpoint of `run` before `iteration`, or its newest one. `error`, about the one that is not
// to be read, is being handled; it is thrown if none is to be taken.
fs::path older_instead(const fs::path& run, std::optional<std::int64_t> iteration, Older older,
                       const Error& error) {
  const bool looked_for = error.fault() == Fault::kData && older != Older::kIgnored;
  const std::optional<fs::path> next = looked_for ? older_checkpoint(run, iteration) : std::nullopt;
  if (!next) throw;
  if (older == Older::kTaken) return *next;
  throw Error(error.fault(), "{}; an older checkpoint is there, {}: --allow-fallback takes it",
              error.what(), next->filename().string());
}

// The folder of the newest checkpoint of `run`; nullopt where nothing was saved. The tracker may be
// damaged, or name a folder that is gone.
std::optional<fs::path> newest_in(const fs::path& run, Older older) {
  try {
    if (holds_checkpoint(run)) return find_checkpoint(run);
  } catch (const Error& error) {
    return older_instead(run, {}, older, error);
  }
  return older_checkpoint(run, {});
}

// The newest checkpoint of `run` that `read` does not find damaged. `run` may be one itself.
template <typename Read>
fs::path newest_whole(const fs::path& run, fs::path checkpoint, Older older, Read&& read) {
  for (;;) {
    try {
      read(checkpoint);
      return checkpoint;
    } catch (const Error& error) {
      checkpoint = older_instead(run, iteration_of(checkpoint.filename().string()), older, error);
    }
  }
}

// What a flag of one start means is over with it, and the run's folder may have been moved.
void forget_start(PretrainOptions& options) {
  LoopOptions& loop = options.loop;
  forget_load_of_start(loop);
  loop.pretrained_checkpoint.clear();
  loop.override_scheduler = loop.use_checkpoint_scheduler = false;
  options.timing.trace.clear();
  options.timing.profile = false;
  options.timing.profile_step_start.reset();
  options.timing.profile_step_end.reset();
  options.faults.fault.clear();
}

// --load has to be a whole model.
void refuse_adapters(const NativeConfig& stored, const std::string& load) {
  if (!stored.lora.given()) return;
  throw Error(Fault::kUsage,
              "--load: {} is a run of adapters, wanted a whole model; piton resume {} continues "
              "it, --load {} --lora-load {} --finetune starts a new run from its adapters, and "
              "piton convert --load {} --to hf makes a whole model of it",
              load, shell_word(load), shell_word(stored.base), shell_word(load), shell_word(load));
}

void check_pretrained(const PretrainOptions& options) {
  const std::string& pretrained = options.loop.pretrained_checkpoint;
  if (options.lora.given()) {
    throw Error(Fault::kUsage, "--pretrained-checkpoint: is no base of adapters; name {} by --load",
                pretrained);
  }
  std::error_code ignored;
  if (fs::exists(pretrained, ignored)) return;
  throw Error(Fault::kUsage, "--pretrained-checkpoint: there is no {}; check the path", pretrained);
}

bool names_a_tokenizer(const TokenizerOptions& options) {
  return options.is_null() || !options.empty();
}

}  // namespace

void forget_load_of_start(LoopOptions& loop) {
  loop.finetune = loop.upcycles = false;
  loop.upcycling_granularity = 1;
  loop.no_load_optim = loop.no_save_optim;  // such checkpoints have none
  loop.no_load_lr_state = false;
}

void check_upcycling(const LoopOptions& loop) {
  if (!loop.upcycles && loop.upcycling_granularity != 1) {
    throw Error(Fault::kUsage, "--moe-upcycling-granularity: needs --moe-use-upcycling");
  }
  if (loop.upcycles && loop.load.empty()) {
    throw Error(Fault::kUsage,
                "--moe-use-upcycling: needs --load DIR, a model without experts to start from");
  }
}

void start_from_pretrained(PretrainOptions& options, Communicator& ranks, Log& notes) {
  LoopOptions& loop = options.loop;
  if (loop.pretrained_checkpoint.empty()) return;
  const std::string pretrained = found_by_first(ranks, [&] {
    const bool exists =
        !loop.load.empty() && (model_format_of(loop.load) != ModelFormat::kPiton ||
                               newest_in(loop.load, older_by(loop.allow_fallback)).has_value());
    return exists ? std::string() : loop.pretrained_checkpoint;
  });
  if (!pretrained.empty()) phase(ranks, {}, [&] { check_pretrained(options); });
  loop.pretrained_checkpoint.clear();
  if (pretrained.empty()) return;
  if (!loop.load.empty()) {
    notes.info(
        fmt::format("--load: {}: nothing is saved there; starting from --pretrained-checkpoint {}",
                    loop.load, pretrained));
  }
  loop.load = pretrained;
  loop.finetune = true;
}

void keep_start(const fs::path& folder, std::map<std::string, std::string>& facts) {
  facts[kStartFact] = full_path(folder);
}

std::optional<fs::path> checkpoint_of_started_run(const LoopOptions& loop) {
  if (loop.load.empty() || loop.save.empty()) return std::nullopt;
  const bool continues = !loop.finetune && model_format_of(loop.load) != ModelFormat::kPiton;
  if (!continues && !loop.starts_from_load) return std::nullopt;
  return checkpoint_of_run_started_from(loop.load, loop);
}

std::optional<fs::path> checkpoint_of_run_started_from(const fs::path& start_folder,
                                                       const LoopOptions& loop) {
  if (model_format_of(loop.save) != ModelFormat::kPiton) return std::nullopt;
  const Older older = older_by(loop.allow_fallback);
  const std::optional<fs::path> newest = newest_in(loop.save, older);
  if (!newest) return std::nullopt;
  TrainState state;
  const fs::path checkpoint = newest_whole(loop.save, *newest, older, [&](const fs::path& one) {
    state = read_state(one, read_manifest(one));
  });
  const auto start = state.facts.find(kStartFact);
  const bool same = start != state.facts.end() && start->second == full_path(start_folder);
  return same ? std::optional(checkpoint) : std::nullopt;
}

std::string adopt_checkpoint(PretrainOptions& options, bool same_command) {
  const LoopOptions& loop = options.loop;
  const bool described = !same_command && describe_a_model(options.model);
  const bool has_tokenizer = names_a_tokenizer(options.tokenizer);
  NativeConfig stored;
  fs::path checkpoint;
  try {
    const fs::path load = folder_to_load(loop);
    // The base of adapters has to be whole.
    const Older older = options.lora.given() ? Older::kIgnored : older_by(loop.allow_fallback);
    if (!newest_in(load, older))
      return "";  // the first start of a run, or CheckpointChoice says why
    read_while_replaced([&] { return newest_in(load, older).value_or(fs::path()); },
                        [&](const fs::path& newest) {
                          checkpoint = newest_whole(load, newest, older, [&](const fs::path& one) {
                            stored = read_native_config(one);
                          });
                        });
  } catch (const Error&) {
    if (described) return "";  // the load says it, and whether an older one is there
    throw;
  }
  refuse_adapters(stored, loop.load);
  const ModelConfig model = resolve_model(stored.model, stored.tokenizer, std::nullopt);
  if (const auto& experts = options.model.mlp.experts; experts && !model.experts)
    refuse_experts(*experts, loop.load);
  if (described && (has_tokenizer || loop.finetune)) return "";
  std::string taken;
  if (!(same_command ? gives_whole_model(options.model, model) : described)) {
    fill_open_options(options.model, stored.model);
    taken = "model";
  }
  if (!has_tokenizer && names_a_tokenizer(stored.tokenizer)) {
    take_tokenizer(stored.tokenizer, options.tokenizer);
    taken += taken.empty() ? "tokenizer: that" : " and tokenizer: those";
  } else if (!taken.empty()) {
    taken += ": that";
  }
  return taken.empty() ? "" : fmt::format("{} of {}", taken, checkpoint.string());
}

RunToResume find_run(const fs::path& folder, bool allow_fallback) {
  const auto refused = [&](const char* what) {
    return Error(Fault::kData, "{}: {}; wanted the folder of --save, or a checkpoint in it",
                 folder.string(), what);
  };
  if (!fs::exists(folder)) throw refused("there is no such folder");
  if (model_format_of(folder) != ModelFormat::kPiton) throw refused("not a run of Piton");
  const bool is_checkpoint = fs::exists(folder / kManifestName);
  const fs::path parent = (fs::absolute(folder) / "").parent_path().parent_path();
  RunToResume run{.save = is_checkpoint ? parent : folder};
  const Older older = older_by(allow_fallback);
  if (const std::optional<fs::path> newest = newest_in(folder, older)) {
    run.checkpoint = newest_whole(folder, *newest, older, [&](const fs::path& one) {
      run.text = read_config(one, read_manifest(one));
    });
    run.name = (run.checkpoint / kConfigName).string();
    return run;
  }
  run.name = (folder / kConfigName).string();
  if (!fs::exists(run.name)) throw refused("not a run");
  run.text = read_text_file(run.name);
  return run;
}

void prepare_resume(const RunToResume& run, const fs::path& folder, PretrainOptions& options) {
  const std::string saved = options.loop.save;
  options.loop.save = run.save.string();
  if (run.checkpoint.empty()) {
    // As the start that ended too early, but for a folder that has been moved since.
    if (options.lora.given()) return;
    if (options.loop.load.empty() || full_path(options.loop.load) == full_path(saved))
      options.loop.load = options.loop.save;
    return;
  }
  (options.lora.given() ? options.loop.lora_load : options.loop.load) = folder.string();
  options.tokenizer = kept_tokenizer(options.tokenizer, fs::absolute(run.checkpoint));
  forget_start(options);
}

bool reads_load(const RunToResume& run, const PretrainOptions& options) {
  return options.lora.given() || run.checkpoint.empty();
}

void check_models_are_there(const RunToResume& run, const PretrainOptions& options) {
  const auto check = [&](const std::string& model, std::string_view what, std::string_view flag) {
    std::error_code ignored;
    if (model.empty() || fs::exists(model, ignored)) return;
    throw Error(Fault::kData,
                "{}: {} {}, which is not there; give its new place: piton resume {} --{} DIR",
                run.save.string(), what, model, shell_word(run.save.string()), flag);
  };
  const LoopOptions& loop = options.loop;
  if (reads_load(run, options))
    check(loop.load, options.lora.given() ? "trains adapters of" : "starts from", "load");
  if (run.checkpoint.empty()) check(loop.lora_load, "starts from the adapters in", "lora-load");
  check(options.preferences.ref_model, "compares with", "ref-model");
  check(options.teaching.teacher_model, "learns from", "teacher-model");
  check(options.rollouts.reward_model, "judges by", "reward-model");
  check(options.rollouts.ppo.critic_model, "started its critic from", "critic-model");
}

PretrainOptions without_training_if_skipped(PretrainOptions options) {
  LoopOptions& loop = options.loop;
  if (!loop.skip_train) return options;
  loop.save.clear();
  loop.tensorboard_dir.clear();
  loop.save_interval = loop.keep = loop.rollback_on_divergence = 0;
  loop.retain_interval.reset();
  loop.save_interval_minutes.reset();
  loop.verify_saves = loop.no_save_optim = false;
  loop.no_load_optim = loop.override_scheduler = true;
  loop.use_checkpoint_scheduler = false;
  return options;
}

}  // namespace piton
