#include "train/run/run_checkpoints.h"

#include <chrono>
#include <set>
#include <utility>

#include "adapters/magnitude_source.h"
#include "adapters/quantized_source.h"
#include "base/seconds.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "comm/gathered_values.h"
#include "huggingface/files/origin.h"
#include "model_files/model_tokenizer.h"
#include "model_files/native_config.h"
#include "train/run/adapter_run.h"
#include "train/run/best_validation.h"
#include "train/run/foreign_resume.h"
#include "train/run/resume_rules.h"
#include "train/run/run_start.h"

namespace piton {
namespace {

// Fact of TrainState: the order of the samples.
constexpr const char* kOrderFact = "train.order";
// The kernels of the run (Kernels::name()): others give other last bits.
constexpr const char* kKernelsFact = "train.kernels";

void compare_facts(const TrainState& stored, const TrainState& fresh, const RunData& data,
                   const std::filesystem::path& checkpoint) {
  for (const auto& [key, value] : fresh.facts) {
    if (key == kStartFact) continue;  // a base of adapters may have moved; its weights have a hash
    const auto found = stored.facts.find(key);
    if (found == stored.facts.end() || found->second == value) continue;
    throw Error(
        Fault::kData,
        "{}: {} has changed since the checkpoint: got {}, wanted {}; restore it, or start again",
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

// "DIR has adapters of layers.0.attention.query with rank 8 and scale 2, this run of ..."
std::string difference_of(const Adapters& theirs, const Adapters& own, const std::string& where) {
  const auto text = [](const Adapters& adapters, const std::string& name) {
    const AdapterShape* const shape = adapters.find(name);
    return shape == nullptr ? std::string("none")
                            : fmt::format("one of rank {} and scale {}{}", shape->rank,
                                          shape->scale, shape->magnitude ? " with DoRA" : "");
  };
  std::set<std::string> names;
  for (const Adapters* each : {&theirs, &own}) {
    for (const auto& [name, shape] : each->shapes) names.insert(name);
  }
  for (const std::string& name : names) {
    if (text(theirs, name) == text(own, name)) continue;
    return fmt::format("{} has for {} {}, this run has {}", where, name, text(theirs, name),
                       text(own, name));
  }
  return fmt::format("{} has other modules that are trained in full", where);
}

}  // namespace

StoredModel RunCheckpoints::stored_model() {
  const bool adapters = session_.settings().adapters.given();
  return {.parameters =
              adapters ? trained_parameters(session_.parameters(), session_.settings().adapters)
                       : session_.parameters(),
          .sharded = &session_.sharded(),
          .optimizer = &session_.optimizer()};
}

// Of this, what a save writes.
StoredModel RunCheckpoints::saved_model() {
  StoredModel model = stored_model();
  if (settled_.loop.no_save_optim) model.optimizer = nullptr;
  return model;
}

StoredModel RunCheckpoints::critic_model() {
  Session& session = *critic_->session;
  return {.parameters = session.parameters(),
          .sharded = &session.sharded(),
          .optimizer = &session.optimizer()};
}

// That of a checkpoint of the policy.
void RunCheckpoints::load_critic(const std::filesystem::path& checkpoint, bool* damaged) {
  if (critic_ == nullptr) return;
  const std::filesystem::path folder =
      checkpoint.parent_path() / kCriticFolder / checkpoint.filename();
  phase(mesh_.group(kAllAxes), std::nullopt, [&] {
    if (std::filesystem::exists(folder)) return;
    throw Error(Fault::kData,
                "{}: there is no {}, the critic of this checkpoint; copy the folder {} of the run",
                checkpoint.string(), folder.string(), kCriticFolder);
  });
  StoredModel model = critic_model();
  if (settled_.loop.no_load_optim) model.optimizer = nullptr;
  load_checkpoint(folder, model, context(), damaged);
  if (model.optimizer == nullptr) critic_->session->publish_values();
}

// For the commands that read reward models it is a run. It is saved before the policy, whose
// checkpoint counts: one more is kept, since until then the policy has the one before.
void RunCheckpoints::save_critic(const TrainState& state) {
  if (critic_ == nullptr) return;
  StoredModel model = critic_model();
  SaveOrder order = save_order(with_progress(state, model));
  if (settled_.loop.no_save_optim) model.optimizer = nullptr;
  PretrainOptions described = settled_;
  described.model = ModelOptions::of(critic_->session->settings().model);
  described.lora = {};
  described.rollouts = {};
  described.preferences = {};
  described.preferences.stage = TrainingStage::kRm;
  order.dir /= kCriticFolder;
  order.config = configuration_of(described);
  if (order.options.keep > 0) ++order.options.keep;
  order.add_files = {};
  save_checkpoint(model, context(), std::move(order));
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

TrainState RunCheckpoints::resume(const ResumeRequest& request, Log& log, bool* damaged) {
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
  load_critic(checkpoint, damaged);
  compare_facts(state, fresh, data_, checkpoint);
  if (!schedule.empty()) {
    log.info(fmt::format("from here on by this run's schedule: {}", schedule));
  }
  state.facts.insert(fresh.facts.begin(), fresh.facts.end());  // an earlier version stored fewer
  const auto start = fresh.facts.find(kStartFact);
  if (start != fresh.facts.end()) state.facts[kStartFact] = start->second;
  const auto order = state.facts.find(kOrderFact);
  if (order != state.facts.end() && state.iteration <= request.train_iters &&
      order->second != data_.order_of_samples(state.consumed_samples)) {
    log.warning(
        "--train-iters: a run of this length shuffles the corpus another way, so samples may "
        "come that were read before");
  }
  const auto kernels = state.facts.find(kKernelsFact);
  if (kernels != state.facts.end() && kernels->second != machine_.kernels.name()) {
    log.info(fmt::format(
        "the checkpoint was computed by {}, this run continues by {}: the last bits of what "
        "follows differ from those of a run that was not stopped",
        kernels->second, machine_.kernels.name()));
  }
  if (loop.no_load_optim) {
    session_.publish_values();
    state.scheduled_samples = 0;  // with the optimizer its schedule starts again
  }
  if (loop.no_load_lr_state) state.scheduled_samples = 0;
  state.scheduled_samples =
      state.scheduled_samples.value_or(state.optimizer_steps * loop.global_batch_size.value_or(0));
  log.info(fmt::format(
      "resumed {}: iteration {}, {} samples, {} tokens, {}, last loss {:.6f}", checkpoint.string(),
      state.iteration, state.consumed_samples, state.consumed_tokens,
      loop.skip_train         ? "for its evaluation"
      : loop.no_load_optim    ? "a new optimizer"
      : loop.no_load_lr_state ? "a new schedule"
                              : fmt::format("learning rate {:.3E}", state.learning_rate),
      state.lm_loss));
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
    const std::string note = other_tokenizer_note(
        *open_tokenizer(settled_.tokenizer), tokenizer_of(read_native_config(checkpoint).tokenizer),
        checkpoint.string());
    if (!note.empty()) log.warning(note);
  }
  session_.publish_values();
  log.info(fmt::format("a new run from the weights of {}, iteration {}", checkpoint.string(),
                       from.iteration));
}

// The parameters that `opened` is to draw (OpenedModel::drawn).
void RunCheckpoints::draw_new(const OpenedModel& opened) {
  std::vector<Parameter*> drawn;
  for (Parameter* parameter : session_.parameters()) {
    if (std::ranges::count(opened.drawn, parameter->pieces.front().name) > 0)
      drawn.push_back(parameter);
  }
  session_.initialize(drawn);
}

void RunCheckpoints::start_from_foreign_weights(const OpenedModel& foreign, Log& log) {
  StoredModel model = stored_model();
  model.optimizer = nullptr;
  for (const std::string& note : foreign.notes) log.warning(note);
  load_weights(*foreign.source, model, context());
  draw_new(foreign);
  session_.publish_values();
  log.info(
      fmt::format("a new run from the weights of {} ({})", foreign.source->where(), foreign.kind));
}

std::int64_t RunCheckpoints::trained_elements() {
  std::int64_t elements = 0;
  for (const CanonicalTensor& tensor :
       tensors_of(stored_model(), TensorKind::kWeight, mesh_.group(kAllAxes)))
    elements += tensor.shape.elements();
  return elements;
}

void RunCheckpoints::load_base(const OpenedModel& base, Log& log) {
  for (const std::string& note : base.notes) log.warning(note);
  try {
    write_adapter_ = writer_of_adapter(base, session_.settings().adapters);
  } catch (const Error& error) {
    log.info(fmt::format("checkpoints have no folder \"{}\" for PEFT: {}", kAdapterFolder,
                         error.what()));
  }
  session_.initialize(adapter_parameters(session_.parameters()));
  load_weights(
      *base.source,
      {.parameters = base_parameters(session_.parameters()), .sharded = &session_.sharded()},
      context());
  draw_new(base);
  // Those of the weights that products are computed with.
  std::unique_ptr<QuantizedSource> quantized;
  if (settled_.lora.quantized_base) {
    quantized = std::make_unique<QuantizedSource>(
        *base.source, *code_format("--qlora", "nf4"),
        ComputeContext{machine_.kernels, machine_.device, machine_.arena, machine_.stream});
  }
  MagnitudeSource lengths(quantized != nullptr ? *quantized : *base.source,
                          session_.settings().adapters);
  if (lengths.tensors(TensorKind::kWeight).empty()) return;
  load_weights(
      lengths,
      {.parameters = magnitude_parameters(session_.parameters()), .sharded = &session_.sharded()},
      context());
}

void RunCheckpoints::start_adapters(const OpenedAdapter* from, Log& log) {
  const Adapters& own = session_.settings().adapters;
  if (from != nullptr) {
    if (from->adapters.shapes != own.shapes || from->adapters.trained != own.trained) {
      throw Error(Fault::kUsage,
                  "--lora-load: {}; change --lora-target-modules, --lora-r, "
                  "--lora-alpha, --use-dora or --lora-modules-to-save",
                  difference_of(from->adapters, own, from->source->where()));
    }
    StoredModel model = stored_model();
    model.optimizer = nullptr;
    load_weights(*from->source, model, context());
  }
  session_.publish_values();
  log.info(from == nullptr ? fmt::format("new adapters of {}", settled_.loop.load)
                           : fmt::format("a new run from the adapters of {} ({}), of the model {}",
                                         from->source->where(), from->kind, settled_.loop.load));
}

TrainState RunCheckpoints::resume_foreign(const OpenedModel& foreign, const TrainState& fresh,
                                          Log& log) {
  const MegatronRun& run = *foreign.run;
  const std::string where = foreign.source->where();
  const DType dtype = session_.settings().model.dtype;
  const bool with_optimizer = !settled_.loop.no_load_optim;
  const DType stored = foreign.megatron->weight_dtype();
  if (with_optimizer && stored != dtype) {
    throw Error(Fault::kUsage,
                "--load: the weights of {} are {}, this run computes in {}; continue it in its "
                "type (--bf16, --fp16), or start again from its weights (--finetune)",
                where, name(stored), name(dtype));
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
                       with_optimizer ? "" : "; the optimizer and its schedule start again"));
  log.info(
      "its random states stay behind: dropout is drawn from --seed and the position; samples come "
      "in its order if corpora, --split, --seed and --train-iters are those of its run");
  if (with_optimizer && !run.schedule && !settled_.loop.no_load_lr_state) {
    log.warning(fmt::format(
        "{}: keeps no opt_param_scheduler: the schedule is this run's, after {} updates", where,
        state.optimizer_steps));
  }
  return state;
}

void RunCheckpoints::check_room() {
  piton::check_room(settled_.loop.save, saved_model(), context());
  if (critic_ != nullptr) piton::check_room(settled_.loop.save, critic_model(), context());
}

bool RunCheckpoints::prepare_copy() {
  return copy_.prepare(saved_model(), context(), {}, machine_.threads);
}

void RunCheckpoints::add_facts(TrainState& state) const {
  state.facts[kOrderFact] = data_.order_of_samples(state.consumed_samples);
  state.facts[kKernelsFact] = machine_.kernels.name();
}

SaveOrder RunCheckpoints::save_order(const TrainState& state) {
  return {.dir = settled_.loop.save,
          .state = state,
          .config = configuration_of(settled_),
          .options = save_options(state),
          .add_files = write_adapter_};
}

SaveOptions RunCheckpoints::save_options(const TrainState& state) {
  const LoopOptions& loop = settled_.loop;
  SaveOptions options{.keep = static_cast<int>(loop.kept_checkpoints()),
                      .retain_interval = loop.retain_interval.value_or(0),
                      .damaged = damaged_,
                      .verify = loop.verify_saves};
  const BestValidation best = BestValidation::of(state.facts);
  if (loop.keep_best && best.loss) options.best = best.iteration;
  // This save replaces it, or removes it.
  std::erase_if(damaged_, [&](std::int64_t one) { return one <= state.iteration; });
  return options;
}

std::filesystem::path RunCheckpoints::save(TrainState& state) {
  PITON_ASSERT(!in_background());
  state = with_progress(std::move(state), stored_model());
  add_facts(state);
  save_critic(state);
  return save_checkpoint(saved_model(), context(), save_order(state));
}

bool RunCheckpoints::start_save(TrainState& state) {
  PITON_ASSERT(!in_background());
  const auto begin = std::chrono::steady_clock::now();
  state = with_progress(std::move(state), stored_model());
  add_facts(state);
  save_critic(state);
  background_ =
      BackgroundSave::start(saved_model(), context(), save_order(state), copy_, machine_.threads);
  begun_ = {.iteration = state.iteration, .copy_seconds = seconds_since(begin)};
  return in_background();
}

std::optional<FinishedSave> RunCheckpoints::take_finished(bool wait, Communicator& everyone) {
  if (!in_background()) return std::nullopt;
  // The threads of the ranks end at different times: the slowest decides.
  if (!wait && !true_on_all(everyone, background_->over())) return std::nullopt;
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
