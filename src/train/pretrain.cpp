#include "train/pretrain.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "base/files.h"
#include "base/hash.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "checkpoint/store.h"
#include "data/corpus/corpus_card.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "text/tokenizer.h"
#include "train/failure_report.h"
#include "train/foreign_model.h"
#include "train/resume_rules.h"
#include "train/run_folder.h"
#include "train/run_plan.h"
#include "train/run_tokenizer.h"
#include "train/session.h"

namespace piton {
namespace {

using Clock = std::chrono::steady_clock;

// Of TrainState: says in which order the samples came.
constexpr const char* kOrderFact = "train.order";
constexpr std::chrono::milliseconds kShowInterval{50};  // of what happens within a step

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of corpora's contents. ("corpus." alone, of earlier checkpoints, also held times of change.)
constexpr const char* kCorpusFact = "corpus_content.";

class Run {
 public:
  Run(const Machine& machine, const PretrainOptions& options, const std::function<int()>& stop,
      Progress& progress)
      : machine_(machine),
        options_(options),
        stop_(stop),
        progress_(progress),
        leads_(machine.world.rank() == 0),
        failure_report_(options.loop.save) {}

  PretrainResult operator()() {
    open();
    const LoopOptions& loop = options_.loop;
    PretrainResult result{.iteration = state_.iteration, .loss = state_.lm_loss};
    if (state_.iteration >= plan_.train_iters) {
      say(
          fmt::format("nothing left to do: the run has done {} of {} iterations; a larger "
                      "--train-iters goes on",
                      state_.iteration, plan_.train_iters));
    }
    while (state_.iteration < plan_.train_iters) {
      result.stop_signal = agreed_stop();
      if (result.stop_signal != 0) break;
      step(result);
      const bool last = state_.iteration == plan_.train_iters;
      const bool leaves = loop.exit_interval && state_.iteration % *loop.exit_interval == 0;
      const bool due = loop.save_interval > 0 && state_.iteration % loop.save_interval == 0;
      if (!loop.save.empty() && (last || leaves || due)) save(/*is_last=*/last || leaves);
      if (leaves) break;
    }
    progress_.finish();
    if (result.stop_signal != 0) {
      if (!loop.save.empty() && saved_iteration_ != state_.iteration && state_.iteration > 0)
        save(/*is_last=*/true);
      say(fmt::format("stopped by signal {} at iteration {}", result.stop_signal,
                      state_.iteration));
    }
    if (folder_) folder_->metrics().finish();
    result.saved = saved_iteration_ == state_.iteration;
    result.finished = state_.iteration >= plan_.train_iters;
    return result;
  }

  // Of an error that ends the run, on this rank.
  void report(const Failure& failure) {
    const bool refused = failure.exit_code == static_cast<int>(Fault::kUsage);
    // What is refused at the start leaves alone the folder of the run that it was refused for, and
    // nobody writes to a folder that another run holds.
    const bool locked = folder_ != nullptr || locked_;
    if (owns_folder_ || (locked && !refused)) {
      failure_report_.write(machine_.world.rank(), failure);
    }
    machine_.world.fail(failure.exit_code, failure.message);
  }

 private:
  void say(const std::string& line) {
    if (leads_) machine_.log.info(line);
  }

  void open() {
    foreign_ = adopt_foreign_model(options_);
    std::unique_ptr<Tokenizer> tokenizer;
    if (!options_.tokenizer.empty()) tokenizer = open_tokenizer(options_.tokenizer);
    plan_ = make_run_plan(options_, machine_.world.size(),
                          tokenizer ? tokenizer->vocabulary_size() : 0);
    rate_ = std::make_unique<LearningRate>(options_.learning_rate, plan_.train_iters,
                                           plan_.global_batch);
    settled_ = settled_options(options_, plan_);
    settled_.tokenizer = from_anywhere(options_.tokenizer);
    options_.optimizer.check();
    state_.seed = options_.loop.seed;
    if (state_.seed > std::numeric_limits<std::uint32_t>::max()) {
      say(
          fmt::format("--seed {}: the order of samples is drawn from its low 32 bits, {}, as "
                      "Megatron's generator takes no more; weights and dropout take all",
                      state_.seed, static_cast<std::uint32_t>(state_.seed)));
    }
    if (tokenizer) state_.facts["tokenizer"] = tokenizer->content_hash();
    mesh_ = std::make_unique<Mesh>(machine_.world, plan_.mesh);
    take_folder(/*may_create=*/false);
    open_data(tokenizer.get());
    take_folder(/*may_create=*/true);
    const std::filesystem::path checkpoint = checkpoint_to_load();
    session_ = std::make_unique<Session>(machine_, *mesh_, plan_.session);
    std::int64_t unpadded = plan_.session.model.parameters();
    say(
        fmt::format("model: {} parameters, {} layers, {}; {} tokens an update ({} samples of {}, "
                    "{} micro-batch{} a rank)",
                    unpadded, plan_.session.model.layers, name(plan_.session.model.dtype),
                    plan_.global_batch * plan_.sequence, plan_.global_batch, plan_.sequence,
                    plan_.micro_batches, plan_.micro_batches > 1 ? "es" : ""));
    if (checkpoint.empty()) {
      session_->initialize();
    } else if (options_.loop.finetune || foreign_) {
      start_from_weights(checkpoint);
    } else {
      resume(checkpoint);
    }
    keep_or_say_that_nothing_is_kept(tokenizer.get());
    if (machine_.measure_peak_flops)
      peak_flops_ = machine_.measure_peak_flops(plan_.session.model.dtype);
    session_->pipeline().observer = [this](const Step& part) { show(part); };
    started_at_ = state_.iteration;
    started_ = Clock::now();
  }

  // Collective.
  void keep_or_say_that_nothing_is_kept(const Tokenizer* tokenizer) {
    const LoopOptions& loop = options_.loop;
    owns_folder_ = !loop.save.empty();
    if (!owns_folder_) {
      if (leads_) machine_.log.warning("no --save is given: nothing of this run will be kept");
      return;
    }
    if (state_.iteration < plan_.train_iters)
      check_room(loop.save, stored_model(), store_context());
    phase(mesh_->group(kAllAxes), 0, [&] {
      folder_->start(configuration_of(settled_), state_.iteration);
      if (tokenizer != nullptr) keep_tokenizer(options_.tokenizer, *tokenizer, loop.save);
      failure_report_.forget_earlier();
    });
  }

  void open_data(const Tokenizer* tokenizer) {
    const LoopOptions& loop = options_.loop;
    SampleCounts counts =
        sample_counts(plan_.train_iters, loop.eval_interval, loop.eval_iters, plan_.global_batch);
    DataSets sets =
        open_data_sets(options_.data, plan_.sequence, static_cast<std::uint32_t>(loop.seed), counts,
                       leads_ ? machine_.log : silent_);
    if (!sets.train)
      throw Error(Fault::kUsage,
                  "--data-path: no training data is named; give the prefix of a corpus (piton "
                  "preprocess makes one)");
    for (std::size_t i = 0; i < sets.prefixes.size(); ++i) {
      const std::string note = check_card(sets.prefixes[i], sets.tokens[i],
                                          tokenizer != nullptr ? tokenizer->name() : "",
                                          tokenizer != nullptr ? tokenizer->content_hash() : "");
      if (!note.empty()) say(note);
    }
    std::optional<std::int32_t> eod;
    std::optional<std::int32_t> pad;
    if (options_.tokenizer.is_null()) {
      eod = static_cast<std::int32_t>(plan_.session.model.vocabulary - 1);
    }
    if (tokenizer != nullptr) {
      eod = tokenizer->special().eod;
      if (tokenizer->special().pad != eod) pad = tokenizer->special().pad;
    }
    const BatchRules rules =
        BatchRules::from(options_.data, eod, pad, plan_.session.model.vocabulary);
    for (std::size_t i = 0; i < sets.fingerprints.size(); ++i) {
      state_.facts[fmt::format("{}{}", kCorpusFact, i)] = sets.fingerprints[i];
    }
    corpora_ = sets.corpora;
    for (const auto& corpus : corpora_) stamps_.push_back(corpus->stamp());
    train_ = std::make_unique<BatchSource>(sets.train, rules);
    if (loop.eval_iters > 0) {
      if (sets.valid.empty() || sets.valid[0].source->size() == 0) {
        throw Error(Fault::kData,
                    "--eval-iters: the validation split has no samples; change --split, or set "
                    "--eval-iters 0");
      }
      BatchRules in_order = rules;
      in_order.order = DataloaderType::kSingle;
      valid_ = std::make_unique<BatchSource>(sets.valid[0].source, in_order);
    }
  }

  // Collective: the lock of --save, before anything in it is looked at. A folder is made only once
  // the data is there to train on.
  void take_folder(bool may_create) {
    const std::string& save = options_.loop.save;
    if (save.empty()) return;
    phase(mesh_->group(kAllAxes), 0, [&] {
      if (folder_ != nullptr || !(may_create || std::filesystem::is_directory(save))) return;
      folder_ = std::make_unique<RunFolder>(save);
    });
    locked_ = may_create;
  }

  // The folder to load, or empty for a new run. --load that names --save's own folder before
  // anything was saved is the first start of a run that is meant to be started again.
  std::filesystem::path checkpoint_to_load() {
    const LoopOptions& loop = options_.loop;
    const bool goes_on = !loop.finetune && continues(loop.load, loop.save);
    if (!loop.save.empty() && !goes_on && latest_iteration(loop.save)) {
      throw Error(Fault::kUsage,
                  "--save: {} already holds a run; give --load {}{} to continue it, or another "
                  "folder",
                  loop.save, loop.save, loop.finetune ? " without --finetune" : "");
    }
    if (loop.finetune && loop.load.empty()) {
      throw Error(Fault::kUsage, "--finetune: needs --load DIR, the weights to start from");
    }
    if (loop.load.empty()) return {};
    if (goes_on && !std::filesystem::exists(std::filesystem::path(loop.load) / kManifestName) &&
        !latest_iteration(loop.load)) {
      say(fmt::format("{}: nothing is saved yet; starting from random weights", loop.load));
      return {};
    }
    return foreign_ ? std::filesystem::path(loop.load) : find_checkpoint(loop.load);
  }

  void resume(const std::filesystem::path& checkpoint) {
    const std::string schedule = compare_options(checkpoint, settled_);
    if (!schedule.empty()) say(fmt::format("from here on by this run's schedule: {}", schedule));
    const std::map<std::string, std::string> facts = state_.facts;
    StoredModel model = stored_model();
    if (options_.loop.no_load_optim) model.optimizer = nullptr;
    state_ = load_checkpoint(checkpoint, model, store_context());
    for (const auto& [key, value] : facts) {
      const auto stored = state_.facts.find(key);
      if (stored != state_.facts.end() && stored->second != value) {
        throw Error(
            Fault::kData,
            "{}: {} has changed since the checkpoint: got {}, wanted {}; restore it, or start anew",
            checkpoint.string(), name_of_fact(key), value, stored->second);
      }
    }
    state_.facts.insert(facts.begin(), facts.end());  // those that an earlier version did not store
    const auto order = state_.facts.find(kOrderFact);
    if (order != state_.facts.end() && state_.iteration <= plan_.train_iters &&
        order->second != order_of_samples() && leads_) {
      machine_.log.warning(
          "--train-iters: a run of this length shuffles the corpus another way, so samples may "
          "come that were read before");
    }
    if (options_.loop.no_load_optim) session_->publish_values();
    if (continues(options_.loop.load, options_.loop.save)) saved_iteration_ = state_.iteration;
    consecutive_skips_ = 0;
    say(fmt::format(
        "resumed {}: iteration {}, {} samples, {} tokens, learning rate {:.3E}, last loss {:.6f}",
        checkpoint.string(), state_.iteration, state_.consumed_samples, state_.consumed_tokens,
        state_.learning_rate, state_.lm_loss));
  }

  // A new run: nothing of the checkpoint's but its weights.
  void start_from_weights(const std::filesystem::path& checkpoint) {
    StoredModel model = stored_model();
    model.optimizer = nullptr;
    if (foreign_) {
      for (const std::string& note : foreign_->notes()) say(note);
      load_weights(*foreign_, model, store_context());
      session_->publish_values();
      say(fmt::format("a new run from the weights of {} ({})", checkpoint.string(),
                      foreign_->config().word("model_type")));
      return;
    }
    const TrainState from = load_checkpoint(checkpoint, model, store_context());
    session_->publish_values();
    say(fmt::format("a new run from the weights of {}, iteration {}", checkpoint.string(),
                    from.iteration));
  }

  // A hash over the first sample of the run and the newest that it has read.
  std::string order_of_samples() {
    StreamHash hash;
    for (const std::int64_t consumed :
         {std::int64_t{0}, state_.consumed_samples - plan_.global_batch}) {
      const std::vector<MicroBatch> one =
          train_->batch({.consumed_samples = std::max<std::int64_t>(consumed, 0),
                         .global_batch = plan_.global_batch,
                         .micro_batch = 1,
                         .rank = 0,
                         .ranks = plan_.global_batch});
      hash.add(std::as_bytes(std::span(one.front().tokens)));
    }
    return hash.hex();
  }

  std::string name_of_fact(const std::string& key) const {
    for (std::size_t i = 0; i < corpora_.size(); ++i) {
      if (key == fmt::format("{}{}", kCorpusFact, i)) return "corpus " + corpora_[i]->prefix();
    }
    return key;
  }

  StoredModel stored_model() {
    return {.parameters = session_->parameters(),
            .sharded = &session_->sharded(),
            .optimizer = &session_->optimizer()};
  }

  StoreContext store_context() {
    return {.mesh = *mesh_,
            .device = machine_.device,
            .arena = machine_.arena,
            .stream = machine_.stream};
  }

  std::vector<MicroBatch> batch(BatchSource& source, std::int64_t consumed) {
    try {
      return source.batch({.consumed_samples = consumed,
                           .global_batch = plan_.global_batch,
                           .micro_batch = options_.loop.micro_batch_size,
                           .rank = mesh_->coordinate(Axis::kData),
                           .ranks = mesh_->size(Axis::kData)});
    } catch (const Error&) {
      check_corpora();  // a sample that cannot be may come of a corpus that was written to
      throw;
    }
  }

  void step(PretrainResult& result) {
    const Clock::time_point start = Clock::now();
    const double lr = rate_->at(session_->optimizer().steps());
    const StepReport report =
        session_->train_step(batch(*train_, state_.consumed_samples), state_.consumed_samples, lr);
    const double elapsed = seconds_since(start);
    state_.iteration += 1;
    state_.consumed_samples += plan_.global_batch;
    state_.consumed_tokens += plan_.global_batch * plan_.sequence;
    state_.learning_rate = lr;
    state_.lm_loss = report.loss;
    result.iteration = state_.iteration;
    result.loss = report.loss;
    count_skips(report);

    StepMetrics metrics{.iteration = state_.iteration,
                        .consumed_samples = state_.consumed_samples,
                        .consumed_tokens = state_.consumed_tokens,
                        .lm_loss = report.loss,
                        .grad_norm = report.grad_norm,
                        .learning_rate = lr,
                        .elapsed_ms = 1e3 * elapsed,
                        .skipped = session_->optimizer().skipped(),
                        .memory = machine_.arena.counts(),
                        .traffic = machine_.world.traffic()};
    const double tokens = static_cast<double>(plan_.global_batch * plan_.sequence);
    metrics.tokens_per_second = tokens / elapsed;
    const double flops =
        3.0 * plan_.session.model.forward_flops_per_token(plan_.sequence) * tokens / elapsed;
    metrics.model_tflops = flops * 1e-12;
    if (peak_flops_ > 0) metrics.share_of_peak = flops / (peak_flops_ * machine_.world.size());
    if (valid_ && (state_.iteration % options_.loop.eval_interval == 0 ||
                   state_.iteration == plan_.train_iters)) {
      metrics.validation_loss = evaluate();
      result.validation_loss = metrics.validation_loss;
    }
    if (folder_) write_metrics(metrics);
    log(metrics);
    if (metrics.validation_loss) {
      say(fmt::format(
          "validation loss at iteration {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} |",
          state_.iteration, *metrics.validation_loss, std::exp(*metrics.validation_loss)));
    }
    if (state_.iteration - started_at_ == 2) warn_of_rare_saves(elapsed);
  }

  // A full disk is no reason to lose the steps: the lines wait for room, like a save.
  void write_metrics(const StepMetrics& metrics) {
    const std::string why = folder_->metrics().write(metrics);
    if (!why.empty() && !metrics_wait_) {
      machine_.log.warning(fmt::format("{}; its lines are kept and tried again", why));
    }
    metrics_wait_ = !why.empty();
  }

  // The first step warms up; the second one tells how long all will take.
  void warn_of_rare_saves(double seconds_a_step) {
    const LoopOptions& loop = options_.loop;
    if (loop.save.empty()) return;  // said at the start
    std::int64_t left = plan_.train_iters - state_.iteration;
    if (loop.exit_interval) {
      left = std::min(left, *loop.exit_interval - state_.iteration % *loop.exit_interval);
    }
    const std::string warning = warning_of_rare_saves(seconds_a_step * static_cast<double>(left),
                                                      loop.save, loop.save_interval);
    if (!warning.empty() && leads_) machine_.log.warning(warning);
  }

  void count_skips(const StepReport& report) {
    consecutive_skips_ = report.skipped ? consecutive_skips_ + 1 : 0;
    if (report.skipped)
      say(fmt::format("iteration {}: gradients are not finite; the update is skipped",
                      state_.iteration));
    if (consecutive_skips_ >= options_.loop.max_consecutive_skips) {
      throw Error(Fault::kDiverged,
                  "iteration {}: {} updates in a row had no finite gradients; lower --lr, or "
                  "continue from an earlier checkpoint",
                  state_.iteration, consecutive_skips_);
    }
  }

  double evaluate() {
    Session::Evaluation sum;
    const std::int64_t round = (state_.iteration - 1) / options_.loop.eval_interval;
    for (std::int64_t i = 0; i < options_.loop.eval_iters; ++i) {
      const std::int64_t consumed = (round * options_.loop.eval_iters + i) * plan_.global_batch;
      evaluation_ = i + 1;
      const Session::Evaluation one = session_->evaluate(batch(*valid_, consumed));
      sum.loss_sum += one.loss_sum;
      sum.loss_tokens += one.loss_tokens;
    }
    evaluation_ = 0;
    const double loss = sum.loss_sum / sum.loss_tokens;
    return loss;
  }

  void log(const StepMetrics& metrics) {
    const LoopOptions& loop = options_.loop;
    if (leads_) {
      const std::string note =
          fmt::format("loss {:.4f}, {:.0f} tokens/s", metrics.lm_loss, metrics.tokens_per_second);
      progress_.update({.done = state_.iteration,
                        .total = plan_.train_iters,
                        .seconds = seconds_since(started_),
                        .note = note});
      note_ = note + "; ";
    }
    if (state_.iteration % loop.log_interval != 0 && state_.iteration != plan_.train_iters) return;
    const double mean =
        seconds_since(started_) / static_cast<double>(state_.iteration - started_at_);
    const auto left =
        static_cast<std::int64_t>(mean * static_cast<double>(plan_.train_iters - state_.iteration));
    if (loop.brief_log) {
      say(fmt::format(
          "iteration {}/{} | loss {:.4f} | lr {:.2e} | grad norm {:.2f} | {:.0f} tokens/s "
          "({:.0f} % of peak) | {}:{:02}:{:02} left",
          state_.iteration, plan_.train_iters, metrics.lm_loss, metrics.learning_rate,
          metrics.grad_norm, metrics.tokens_per_second, 100 * metrics.share_of_peak, left / 3600,
          left / 60 % 60, left % 60));
      return;
    }
    std::string line = fmt::format(
        "iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per iteration (ms): {:.1f} | "
        "learning rate: {:.3E} | global batch size: {:5} | lm loss: {:.6E} | loss scale: 1.0 | "
        "grad norm: {:.3f} | number of skipped iterations: {} | tokens per second: {:.0f} | "
        "TFLOP/s: {:.3f} | share of peak: {:.1f} % | time left: {}:{:02}:{:02} |",
        state_.iteration, plan_.train_iters, state_.consumed_samples, metrics.elapsed_ms,
        metrics.learning_rate, plan_.global_batch, metrics.lm_loss, metrics.grad_norm,
        metrics.skipped, metrics.tokens_per_second, metrics.model_tflops,
        100 * metrics.share_of_peak, left / 3600, left / 60 % 60, left % 60);
    say(line);
  }

  // One rank's signal stops all of them at the same step.
  int agreed_stop() {
    const int mine = stop_();
    if (machine_.world.size() == 1) return mine;
    for (const std::string& one : mesh_->group(kAllAxes).gather_bytes(std::to_string(mine))) {
      if (one != "0") return std::stoi(one);
    }
    return 0;
  }

  // Called as each part of a step begins: a step may take minutes.
  void show(const Step& part) {
    const Clock::time_point time = Clock::now();
    if (!leads_ || time - shown_ < kShowInterval) return;
    shown_ = time;
    const bool forward = part.pass == Pass::kForward;
    const std::string now =
        evaluation_ > 0
            ? fmt::format("evaluation {} of {}", evaluation_, options_.loop.eval_iters)
            : fmt::format("step {}, {}", state_.iteration + 1, forward ? "forward" : "backward");
    progress_.update({.done = state_.iteration,
                      .total = plan_.train_iters,
                      .seconds = seconds_since(started_),
                      .note = fmt::format("{}{}: micro-batch {} of {}", note_, now,
                                          part.micro_batch + 1, plan_.micro_batches)});
  }

  // A corpus that somebody wrote to while it was read must not reach a checkpoint unnoticed.
  void check_corpora() {
    for (std::size_t i = 0; i < corpora_.size(); ++i) {
      const std::string stamp = corpora_[i]->stamp();
      if (stamp == stamps_[i]) continue;
      const std::string& wanted = state_.facts[fmt::format("{}{}", kCorpusFact, i)];
      const std::string got = corpora_[i]->fingerprint();
      if (got != wanted) {
        throw Error(Fault::kData,
                    "{}: changed while it was read: its contents are {}, they were {}; restore "
                    "it, and continue from the last checkpoint",
                    corpora_[i]->prefix(), got, wanted);
      }
      stamps_[i] = stamp;
    }
  }

  // A save between others may fail, as on a full disk: the run goes on, and the next one is tried.
  void save(bool is_last) {
    const LoopOptions& loop = options_.loop;
    const Clock::time_point start = Clock::now();
    phase(mesh_->group(kAllAxes), 0, [&] { check_corpora(); });
    state_.facts[kOrderFact] = order_of_samples();
    try {
      const std::filesystem::path folder = save_checkpoint(
          loop.save, stored_model(), store_context(), state_, configuration_of(settled_),
          {.keep = static_cast<int>(loop.keep), .verify = loop.verify_saves});
      saved_iteration_ = state_.iteration;
      say(fmt::format("saved {} in {:.1f} s", folder.string(), seconds_since(start)));
    } catch (const Error& error) {
      if (is_last || error.fault() != Fault::kData) throw;
      if (!leads_) return;
      machine_.log.warning(fmt::format(
          "iteration {} is not saved: {}; the run goes on and saves again at iteration {}",
          state_.iteration, error.what(),
          std::min(state_.iteration + loop.save_interval, plan_.train_iters)));
    }
  }

  Machine machine_;
  PretrainOptions options_;
  PretrainOptions settled_;  // with every derived default as it came out
  const std::function<int()>& stop_;
  Progress& progress_;
  std::unique_ptr<HfSource> foreign_;  // --load is a Hugging Face folder
  bool leads_;
  SilentLog silent_;  // of ranks that would repeat what the first one says
  RunPlan plan_;
  TrainState state_;
  std::unique_ptr<LearningRate> rate_;
  std::unique_ptr<BatchSource> train_;
  std::unique_ptr<BatchSource> valid_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Session> session_;
  std::vector<std::shared_ptr<const IndexedDataset>> corpora_;
  std::vector<std::string> stamps_;    // of the corpora, when their contents were last known
  std::unique_ptr<RunFolder> folder_;  // of the first rank
  bool locked_ = false;                // on every rank: the folder's lock is this run's
  bool metrics_wait_ = false;
  Clock::time_point shown_;
  std::string note_;             // of the last step, before what runs now
  std::int64_t evaluation_ = 0;  // batch of the evaluation under way, from 1; 0: none
  double peak_flops_ = 0;        // of one rank
  std::int64_t consecutive_skips_ = 0;
  std::optional<std::int64_t> saved_iteration_;  // of the checkpoint in --save's folder
  bool owns_folder_ = false;                     // --save's folder is this run's
  FailureReport failure_report_;
  std::int64_t started_at_ = 0;
  Clock::time_point started_;
};

}  // namespace

PretrainResult pretrain(const Machine& machine, const PretrainOptions& options,
                        const std::function<int()>& stop, Progress& progress) {
  Run run(machine, options, stop, progress);  // outlives the report
  try {
    return run();
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    run.report(failure);
    if (machine.world.size() == 1 || failure.fault == kInternalFault) throw;
    throw Error(static_cast<Fault>(failure.exit_code), "[rank {}] {}", machine.world.rank(),
                failure.message);
  }
}

}  // namespace piton
