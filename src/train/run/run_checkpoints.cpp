#include "train/run/run_checkpoints.h"

#include <chrono>
#include <utility>

#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "huggingface/origin.h"
#include "train/run/foreign_resume.h"
#include "train/run/resume_rules.h"
#include "train/run/run_tokenizer.h"
#include "train/run/stored_options.h"

namespace piton {
namespace {

// Fact of TrainState: the order of the samples.
constexpr const char* kOrderFact = "train.order";
// The kernels of the run (Kernels::name()): others give other last bits.
constexpr const char* kKernelsFact = "train.kernels";

void compare_facts(const TrainState& stored, const TrainState& fresh, const RunData& data,
                   const std::filesystem::path& checkpoint) {
  for (const auto& [key, value] : fresh.facts) {
    const auto found = stored.facts.find(key);
    if (found == stored.facts.end() || found->second == value) continue;
    throw Error(
        Fault::kData,
        "{}: {} has changed since the checkpoint: got {}, wanted {}; restore it, or start anew",
        checkpoint.string(), data.name_of_fact(key), value, found->second);
  }
}

// Whether the run `state` reads other ids than `from` did; null tokenizers read what others wrote.
bool has_another_tokenizer(const TrainState& from, const TrainState& state,
                           const TokenizerOptions& options) {
  const auto was = from.facts.find(kTokenizerFact);
  const auto is = state.facts.find(kTokenizerFact);
  return !options.is_null() && was != from.facts.end() && is != state.facts.end() &&
         was->second != is->second;
}

}  // namespace

StoredModel RunCheckpoints::stored_model() {
  return {.parameters = session_.parameters(),
          .sharded = &session_.sharded(),
          .optimizer = &session_.optimizer()};
}

// Of this, what a save writes.
StoredModel RunCheckpoints::saved_model() {
  StoredModel model = stored_model();
  if (settled_.loop.no_save_optim) model.optimizer = nullptr;
  return model;
}

StoreContext RunCheckpoints::context() {
  return {.mesh = mesh_,
          .device = machine_.device,
          .arena = machine_.arena,
          .stream = machine_.stream,
          .threads = &machine_.threads};
}

TrainState RunCheckpoints::checked_state(const std::filesystem::path& checkpoint,
                                         PretrainOptions& settled, const TrainState& fresh,
                                         const RunData& data) {
  compare_options(checkpoint, settled);
  TrainState state = read_state(checkpoint, read_manifest(checkpoint));
  compare_facts(state, fresh, data, checkpoint);
  return state;
}

TrainState RunCheckpoints::resume(const ResumeRequest& request, RunData& data, Log& log,
                                  bool* damaged) {
  const std::filesystem::path& checkpoint = request.checkpoint;
  const TrainState& fresh = request.fresh;
  const LoopOptions& loop = settled_.loop;
  std::string schedule;
  *damaged = true;
  phase(mesh_.group(kAllAxes), std::nullopt,
        [&] { schedule = compare_options(checkpoint, settled_); });
  StoredModel model = stored_model();
  if (loop.no_load_optim) model.optimizer = nullptr;
  TrainState state = load_checkpoint(checkpoint, model, context(), damaged);
  compare_facts(state, fresh, data, checkpoint);
  if (!schedule.empty()) {
    log.info(fmt::format("from here on by this run's schedule: {}", schedule));
  }
  state.facts.insert(fresh.facts.begin(), fresh.facts.end());  // an earlier version stored fewer
  const auto order = state.facts.find(kOrderFact);
  if (order != state.facts.end() && state.iteration <= request.train_iters &&
      order->second != data.order_of_samples(state.consumed_samples)) {
    log.warning(
        "--train-iters: a run of this length shuffles the corpus another way, so samples may "
        "come that were read before");
  }
  const auto kernels = state.facts.find(kKernelsFact);
  if (kernels != state.facts.end() && kernels->second != machine_.kernels.name()) {
    log.info(fmt::format(
        "the checkpoint was computed by {}, this run goes on by {}: the last bits of what "
        "follows differ from those of a run that was not stopped",
        kernels->second, machine_.kernels.name()));
  }
  if (loop.no_load_optim) {
    session_.publish_values();
    state.scheduled_samples = 0;  // with the optimizer its schedule starts again
  }
  state.scheduled_samples =
      state.scheduled_samples.value_or(state.optimizer_steps * loop.global_batch_size.value_or(0));
  log.info(fmt::format(
      "resumed {}: iteration {}, {} samples, {} tokens, learning rate {:.3E}, last loss {:.6f}",
      checkpoint.string(), state.iteration, state.consumed_samples, state.consumed_tokens,
      state.learning_rate, state.lm_loss));
  return state;
}

void RunCheckpoints::start_from_weights(const std::filesystem::path& checkpoint, TrainState& state,
                                        Log& log, bool* damaged) {
  StoredModel model = stored_model();
  model.optimizer = nullptr;
  const TrainState from = load_checkpoint(checkpoint, model, context(), damaged);
  const auto origin = from.facts.find(kOriginFact);
  if (origin != from.facts.end()) state.facts.insert(*origin);
  const auto other = from.facts.find(kOtherTokenizerFact);
  if (other != from.facts.end()) state.facts.insert(*other);
  if (has_another_tokenizer(from, state, settled_.tokenizer)) {
    state.facts[kOtherTokenizerFact] = "true";
    const std::string note =
        other_tokenizer_note(*open_tokenizer(settled_.tokenizer),
                             stored_options(checkpoint).tokenizer, checkpoint.string());
    if (!note.empty()) log.warning(note);
  }
  session_.publish_values();
  log.info(fmt::format("a new run from the weights of {}, iteration {}", checkpoint.string(),
                       from.iteration));
}

void RunCheckpoints::start_from_foreign_weights(const ForeignModel& foreign, Log& log) {
  StoredModel model = stored_model();
  model.optimizer = nullptr;
  for (const std::string& note : foreign.notes) log.warning(note);
  load_weights(*foreign.source, model, context());
  session_.publish_values();
  log.info(
      fmt::format("a new run from the weights of {} ({})", foreign.source->where(), foreign.kind));
}

TrainState RunCheckpoints::resume_foreign(const ForeignModel& foreign, const TrainState& fresh,
                                          Log& log) {
  const MegatronRun& run = *foreign.run;
  const std::string where = foreign.source->where();
  const DType dtype = session_.settings().model.dtype;
  const bool with_optimizer = !settled_.loop.no_load_optim;
  if (with_optimizer && foreign.dtype != dtype) {
    throw Error(Fault::kUsage,
                "--load: the weights of {} are {}, this run computes in {}; continue it in its "
                "type (--bf16, --fp16), or start anew from its weights (--finetune)",
                where, name(foreign.dtype), name(dtype));
  }
  const std::string schedule = compare_with_megatron(run, where, settled_);
  if (!schedule.empty()) {
    log.info(fmt::format("from here on by this run's schedule: {}", schedule));
  }
  for (const std::string& note : foreign.notes) log.warning(note);
  StoredModel model = stored_model();
  if (!with_optimizer) model.optimizer = nullptr;
  load_weights_and_state(*foreign.source, model, context());
  TrainState state = state_of_megatron(run, fresh, settled_);
  if (with_optimizer) {
    OptimizerProgress progress = session_.optimizer().progress();
    progress.steps = state.optimizer_steps;
    progress.skipped = state.skipped_steps;
    if (run.loss_scale) {
      progress.loss_scale = run.loss_scale->scale;
      progress.good_updates = run.loss_scale->good_updates;
      progress.hysteresis_left = run.loss_scale->hysteresis_left;
    }
    session_.optimizer().set_progress(progress);
  } else {
    session_.publish_values();
  }
  log.info(fmt::format("resumed {} ({}): iteration {}, {} samples, {} updates{}", where,
                       foreign.kind, state.iteration, state.consumed_samples, state.optimizer_steps,
                       with_optimizer ? "" : "; the optimizer and its schedule start anew"));
  log.info(
      "its random states stay behind: dropout is drawn from --seed and the position; samples come "
      "in its order if corpora, --split, --seed and --train-iters are those of its run");
  if (with_optimizer && !run.schedule) {
    log.warning(fmt::format(
        "{}: keeps no opt_param_scheduler: the schedule is this run's, after {} updates", where,
        state.optimizer_steps));
  }
  return state;
}

void RunCheckpoints::check_room() {
  piton::check_room(settled_.loop.save, saved_model(), context());
}

bool RunCheckpoints::prepare_copy() {
  return copy_.prepare(saved_model(), context(), {}, machine_.threads);
}

void RunCheckpoints::add_facts(TrainState& state, RunData& data) const {
  state.facts[kOrderFact] = data.order_of_samples(state.consumed_samples);
  state.facts[kKernelsFact] = machine_.kernels.name();
}

SaveOptions RunCheckpoints::save_options(std::int64_t iteration) {
  SaveOptions options{.keep = static_cast<int>(settled_.loop.keep),
                      .damaged = damaged_,
                      .verify = settled_.loop.verify_saves};
  // This save replaces it, or removes it.
  std::erase_if(damaged_, [&](std::int64_t one) { return one <= iteration; });
  return options;
}

std::filesystem::path RunCheckpoints::save(TrainState& state, RunData& data) {
  PITON_ASSERT(!in_background());
  state = with_progress(std::move(state), stored_model());
  add_facts(state, data);
  return save_checkpoint(
      saved_model(), context(),
      {settled_.loop.save, state, configuration_of(settled_), save_options(state.iteration)});
}

bool RunCheckpoints::start_save(TrainState& state, RunData& data) {
  PITON_ASSERT(!in_background());
  const auto begin = std::chrono::steady_clock::now();
  state = with_progress(std::move(state), stored_model());
  add_facts(state, data);
  background_ = BackgroundSave::start(
      saved_model(), context(),
      {settled_.loop.save, state, configuration_of(settled_), save_options(state.iteration)}, copy_,
      machine_.threads);
  begun_ = {.iteration = state.iteration, .copy_seconds = seconds_since(begin)};
  return in_background();
}

std::optional<FinishedSave> RunCheckpoints::take_finished(bool wait, Communicator& everyone) {
  if (!in_background()) return std::nullopt;
  if (!wait) {
    // The threads of the ranks end at different times: the slowest decides.
    for (const std::string& other : everyone.gather_bytes(background_->over() ? "y" : "n")) {
      if (other != "y") return std::nullopt;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<BackgroundSave> over = std::move(background_);
  FinishedSave finished = begun_;
  try {
    finished.folder = over->wait();
  } catch (const Error& error) {
    if (error.fault() != Fault::kData) throw;
    finished.error = error;
  }
  finished.seconds = over->seconds();
  finished.waited_seconds = seconds_since(begin);
  return finished;
}

}  // namespace piton
