// piton pretrain: trains a model from a recipe and flags; piton finetune: trains a model that
// exists on instruction data; piton resume: continues a run.
#include "train/pretrain.h"

#include "base/shell_word.h"
#include "cli/command.h"
#include "cli/commands/training_tasks.h"
#include "cli/compatibility/deepspeed_config.h"
#include "cli/compatibility/environment.h"
#include "cli/compatibility/launchers.h"
#include "cli/compatibility/megatron_flags.h"
#include "cli/compatibility/mindspeed_flags.h"
#include "cli/compatibility/model_factors.h"
#include "cli/compatibility/stage_layers.h"
#include "cli/launch.h"
#include "cli/terminal/descriptors.h"
#include "cli/terminal/stop_signals.h"
#include "train/run/run_folder.h"
#include "train/run/run_start.h"

namespace piton::cli {
namespace {

// Whether the command line asks for one stage or one tensor rank. What the stored layout has for
// several (virtual stages, sequence parallelism) is then left out: flags cannot unset all of it.
struct OneOfThem {
  ParallelOptions flags;
  bool stage = false;
  bool tensor_rank = false;

  OneOfThem(const OptionSet& set, const ParallelOptions& given)
      : flags(given),
        stage(set.given("pipeline-model-parallel-size") && given.pipeline == 1),
        tensor_rank(set.given("tensor-model-parallel-size") && given.tensor == 1) {}

  void leave_out_others(ParallelOptions& stored) const {
    if (stage) stored.schedule = flags.schedule;
    if (tensor_rank) stored.linears = flags.linears;
  }
};

// The options of `piton resume RUN` before those of the command line.
RunToResume read_stored_options(const std::vector<std::string>& positional, OptionSet& set,
                                PretrainOptions& options) {
  if (positional.empty()) {
    throw Error(Fault::kUsage, "wanted the folder of a run, as in piton resume RUN");
  }
  refuse_more_arguments(positional, 1);
  const std::string& folder = positional.front();
  const bool moved = set.given("load");
  if (set.given("finetune")) {
    throw Error(Fault::kUsage, "--finetune: starts a new run: piton pretrain --finetune --load {}",
                shell_word(folder));
  }
  RunToResume run = find_run(folder, options.loop.allow_fallback);
  const OneOfThem one(set, options.parallel);
  const bool by_epochs =
      set.given("num-train-epochs") && !set.given("train-iters") && !set.given("train-samples");
  set.read_toml_text(run.text, run.name);
  if (by_epochs) {  // in place of the stored length
    options.loop.train_iters = 0;
    options.loop.train_samples.reset();
  }
  one.leave_out_others(options.parallel);
  prepare_resume(run, folder, options);
  if (moved && !reads_load(run, options)) {
    throw Error(Fault::kUsage, "--load: a resume loads the run that it names; leave it out");
  }
  return run;
}

// Flags of adapters without adapters: the run would train the whole model and ignore them. A file
// with all options of a run gives the targets too, as an empty list.
void check_adapter_flags(const OptionSet& set) {
  if (set.given("lora-target-modules")) return;
  for (const char* flag :
       {"lora-r", "lora-rank-pattern", "lora-alpha-pattern", "lora-layers-to-transform",
        "lora-alpha", "lora-dropout", "lora-use-rslora", "lora-adapter-name", "use-dora",
        "lora-modules-to-save"}) {
    if (!set.given(flag)) continue;
    throw Error(Fault::kUsage,
                "--{}: needs --lora-target-modules, which is not given; add all-linear or names of "
                "linears, or leave --{} out to train the whole model",
                flag, flag);
  }
}

// A line about what to do with the model of a finished run.
std::string use_of(const PretrainOptions& options, const PretrainResult& result) {
  const std::string run = shell_word(options.loop.save);
  if (options.preferences.stage == TrainingStage::kRm)
    return fmt::format("next: piton score --reward --load {} FILE", run);
  if (options.preferences.classifies())
    return fmt::format("next: piton classify --load {} FILE", run);
  if (options.data.is_instruction_dataset) return fmt::format("next: piton chat --load {}", run);
  if (result.encoder) return fmt::format("next: piton embed --load {} --output F.npy FILE", run);
  if (options.tokenizer.is_null())
    return fmt::format("next: piton generate --load {} --prompt-ids 1,2,3", run);
  if (result.encoder_decoder)
    return fmt::format("next: piton generate --load {} --prompt TEXT", run);
  return fmt::format("next: piton generate --load {} --prompt TEXT, or piton score --load {} FILE",
                     run, run);
}

enum class Training : std::uint8_t { kPretrain, kFinetune, kResume };

// What differs in `piton finetune`: the model exists, and the data are packed samples of questions
// and answers.
void set_finetuning(PretrainOptions& options) {
  options.data.is_instruction_dataset = true;
  options.data.pack = true;
}

// Of the stages of pairs, as in MindSpeed-LLM: the model that training starts from.
void set_reference(PretrainOptions& options, std::vector<std::string>& notes) {
  PreferenceOptions& preferences = options.preferences;
  const LoopOptions& loop = options.loop;
  const bool compares = preferences.has_reference() && preferences.by_preferences();
  if (!compares || !preferences.ref_model.empty() || !loop.starts_from_load || loop.ckpt_step ||
      !loop.pretrained_checkpoint.empty())
    return;
  preferences.ref_model = loop.load;
  notes.push_back(
      fmt::format("--ref-model: not given, so the reference is that of --load, {}", loop.load));
}

void check_finetuning(const OptionSet& set, PretrainOptions& options,
                      std::vector<std::string>& notes) {
  LoopOptions& loop = options.loop;
  if (loop.load.empty() && loop.pretrained_checkpoint.empty()) {
    throw Error(Fault::kUsage,
                "--load: no model is named; wanted the folder of the model to fine-tune");
  }
  loop.starts_from_load = !options.lora.given() && !continues(loop.load, loop.save);
  if (options.preferences.by_preferences() && !set.given("is-pairwise-dataset"))
    options.data.is_pairwise_dataset = true;
  // Corpora have no samples to pack, and samples are packed once.
  const bool packs = options.data.is_instruction_dataset && !options.data.neat_pack &&
                     !options.preferences.by_rewards() && !options.preferences.classifies();
  const bool varies = options.data.variable_seq_lengths;
  if (!set.given("pack")) options.data.pack = packs && !varies;
  if (packs && varies && !options.data.pack)
    notes.emplace_back("--variable-seq-lengths: one sample a row; add --pack to pack them");
  set_reference(options, notes);
  if (options.preferences.classifies() && !set.given("variable-seq-lengths"))
    options.data.variable_seq_lengths = true;
}

int train(Invocation& invocation, Training training) {
  const bool resumes = training == Training::kResume;
  StopSignals signals(invocation.log);
  GeneralOptions general;
  PretrainOptions options;
  if (training == Training::kFinetune) set_finetuning(options);
  OptionSet set;
  options.add_to(set);
  MegatronFlags megatron;
  set.set_foreign(&megatron);
  options.loop.brief_log = invocation.terminal.log_to_stdout(is_launched());
  const Variables variables = environment_variables();
  std::vector<std::string> notes;
  std::unique_ptr<TaskEvaluator> tasks;
  std::optional<DeepSpeedConfig> deepspeed;
  invocation.together([&] {
    if (resumes) {
      RunToResume run;
      invocation.parse(set, general, false, [&](const std::vector<std::string>& positional) {
        run = read_stored_options(positional, set, options);
      });
      check_models_are_there(run, options);
    } else {
      refuse_more_arguments(invocation.parse(set, general, true));
      check_adapter_flags(set);
    }
    notes = read_environment(set, variables);
    if (training == Training::kFinetune) check_finetuning(set, options, notes);
    // Before the others, which ask what model the options describe.
    read_mindspeed_flags(megatron, {set, options.model, options.parallel}, notes);
    megatron.check(options.model);
    deepspeed = read_deepspeed(megatron, set, options.parallel);
    read_stage_layers(megatron, set, options.parallel, options.model);
    read_model_factors(megatron, set, options.model);
    tasks = make_task_evaluator(options.tasks);
  });
  if (options.loop.brief_log && !set.given("log-interval")) options.loop.log_interval = 10;
  const bool saves = !options.loop.save.empty();
  signals.promise(saves ? "stopping after this step, which is then saved"
                        : "stopping after this step; nothing is saved, since no --save is given");
  Engine engine(engine_options(general), invocation.log);
  const bool leads = engine.world().rank() == 0;
  if (!leads) signals.be_silent();
  refuse_unjoined_processes(engine.world().size());
  if (deepspeed)
    deepspeed->settle_batch(set, options.parallel.check(engine.world().size()).sample_ranks());
  options.changed = set.changed();
  notes.push_back(world_size_note(variables, engine.world().size()));
  if (leads) {
    megatron.report(invocation.log);
    for (const std::string& note : notes) {
      if (!note.empty()) invocation.log.info(note);
    }
    if (saves) invocation.warn_of_root(general);
  }
  const PretrainResult result = pretrain(engine.machine(), options,
                                         {.planner = &engine.planner(),
                                          .tasks = tasks.get(),
                                          .stop = [&] { return signals.first(); },
                                          .over = [&] { signals.settle(); },
                                          .progress = invocation.progress});
  if (saves && leads && result.finished) invocation.log.info(use_of(options, result));
  replace_unread_output();  // the log is no result that a run fails for
  if (leads && result.saved && !result.finished) {
    invocation.log.info(
        fmt::format("next: piton resume {} continues", shell_word(options.loop.save)));
  }
  if (result.stop_signal == 0) return 0;
  return result.saved ? static_cast<int>(Fault::kSaved) : 128 + result.stop_signal;
}

}  // namespace

int run_pretrain(Invocation& invocation) { return train(invocation, Training::kPretrain); }
int run_finetune(Invocation& invocation) { return train(invocation, Training::kFinetune); }
int run_resume(Invocation& invocation) { return train(invocation, Training::kResume); }

}  // namespace piton::cli
