#include "train/pretrain.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <utility>

#include "base/files.h"
#include "checkpoint/store.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "text/tokenizer.h"
#include "train/failure_report.h"
#include "train/metrics.h"
#include "train/run_plan.h"
#include "train/session.h"

namespace piton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kShowInterval{50};  // of what happens within a step

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Run {
 public:
  Run(const Machine& machine, const PretrainOptions& options, const OptionSet& resolved,
      const std::function<int()>& stop, Progress& progress)
      : machine_(machine),
        options_(options),
        resolved_(resolved),
        stop_(stop),
        progress_(progress),
        leads_(machine.world.rank() == 0),
        failure_report_(options.loop.save) {}

  PretrainResult operator()() {
    open();
    const LoopOptions& loop = options_.loop;
    PretrainResult result{.iteration = state_.iteration, .loss = state_.lm_loss};
    while (state_.iteration < loop.train_iters) {
      result.stop_signal = agreed_stop();
      if (result.stop_signal != 0) break;
      step(result);
      const bool last = state_.iteration == loop.train_iters;
      const bool leaves = loop.exit_interval && state_.iteration % *loop.exit_interval == 0;
      const bool due = loop.save_interval > 0 && state_.iteration % loop.save_interval == 0;
      if (!loop.save.empty() && (last || leaves || due)) save();
      if (leaves) break;
    }
    progress_.finish();
    if (result.stop_signal != 0) {
      if (!loop.save.empty() && saved_iteration_ != state_.iteration && state_.iteration > 0)
        save();
      say(fmt::format("stopped by signal {} at iteration {}", result.stop_signal,
                      state_.iteration));
    }
    result.saved = saved_iteration_ == state_.iteration;
    return result;
  }

  // Of an error that ends the run, on this rank.
  void report(const Failure& failure) {
    const bool refused = failure.exit_code == static_cast<int>(Fault::kUsage);
    // What is refused at the start leaves alone the folder of the run that it was refused for.
    if (owns_folder_ || !refused) failure_report_.write(machine_.world.rank(), failure);
    machine_.world.fail(failure.exit_code, failure.message);
  }

 private:
  void say(const std::string& line) {
    if (leads_) machine_.log.info(line);
  }

  void open() {
    std::unique_ptr<Tokenizer> tokenizer;
    if (!options_.tokenizer.empty()) tokenizer = open_tokenizer(options_.tokenizer);
    plan_ = make_run_plan(options_, machine_.world.size(),
                          tokenizer ? tokenizer->vocabulary_size() : 0);
    rate_ = std::make_unique<LearningRate>(options_.learning_rate, options_.loop.train_iters);
    options_.optimizer.check();
    state_.seed = options_.loop.seed;
    if (state_.seed > std::numeric_limits<std::uint32_t>::max()) {
      say(
          fmt::format("--seed {}: the order of samples is drawn from its low 32 bits, {}, as "
                      "Megatron's generator takes no more; weights and dropout take all",
                      state_.seed, static_cast<std::uint32_t>(state_.seed)));
    }
    if (tokenizer) state_.facts["tokenizer"] = tokenizer->content_hash();
    open_data(tokenizer.get());

    const std::filesystem::path checkpoint = checkpoint_to_load();
    mesh_ = std::make_unique<Mesh>(machine_.world, plan_.mesh);
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
    } else {
      resume(checkpoint);
    }
    keep_or_say_that_nothing_is_kept();
    if (machine_.measure_peak_flops)
      peak_flops_ = machine_.measure_peak_flops(plan_.session.model.dtype);
    session_->pipeline().observer = [this](const Step& part) { show(part); };
    started_at_ = state_.iteration;
    started_ = Clock::now();
  }

  void keep_or_say_that_nothing_is_kept() {
    owns_folder_ = !options_.loop.save.empty();
    if (!leads_) return;
    if (owns_folder_) {
      create_folders(options_.loop.save);
      write_text_file(std::filesystem::path(options_.loop.save) / "config.toml",
                      resolved_.to_toml());
      metrics_ = std::make_unique<MetricsFile>(
          std::filesystem::path(options_.loop.save) / "metrics.jsonl", state_.iteration);
      failure_report_.forget_earlier();
    } else {
      machine_.log.warning("no --save is given: nothing of this run will be kept");
    }
  }

  void open_data(const Tokenizer* tokenizer) {
    const LoopOptions& loop = options_.loop;
    SampleCounts counts =
        sample_counts(loop.train_iters, loop.eval_interval, loop.eval_iters, plan_.global_batch);
    DataSets sets =
        open_data_sets(options_.data, plan_.sequence, static_cast<std::uint32_t>(loop.seed), counts,
                       leads_ ? machine_.log : silent_);
    if (!sets.train)
      throw Error(Fault::kUsage,
                  "--data-path: no training data is named; give the prefix of a corpus (piton "
                  "preprocess makes one)");
    std::optional<std::int32_t> eod;
    std::optional<std::int32_t> pad;
    if (tokenizer != nullptr) {
      eod = tokenizer->special().eod;
      if (tokenizer->special().pad != eod) pad = tokenizer->special().pad;
    }
    const BatchRules rules =
        BatchRules::from(options_.data, eod, pad, plan_.session.model.vocabulary);
    for (std::size_t i = 0; i < sets.fingerprints.size(); ++i) {
      state_.facts[fmt::format("corpus.{}", i)] = sets.fingerprints[i];
    }
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

  // The folder to load, or empty for a new run. --load that names --save's own folder before
  // anything was saved is the first start of a run that is meant to be started again.
  std::filesystem::path checkpoint_to_load() {
    const LoopOptions& loop = options_.loop;
    if (loop.load.empty()) {
      if (!loop.save.empty() && latest_iteration(loop.save)) {
        throw Error(
            Fault::kUsage,
            "--save: {} already holds a run; give --load {} to continue it, or another folder",
            loop.save, loop.save);
      }
      return {};
    }
    if (loop.load == loop.save && !latest_iteration(loop.load)) {
      say(fmt::format("{}: nothing is saved yet; starting from random weights", loop.load));
      return {};
    }
    return find_checkpoint(loop.load);
  }

  void resume(const std::filesystem::path& checkpoint) {
    const std::vector<std::string> differences = resolved_.differences(checkpoint / "config.toml");
    if (!differences.empty()) {
      throw Error(
          Fault::kUsage,
          "--load: {} is another experiment: {}; use its values, or start anew with another --save",
          checkpoint.string(), fmt::join(differences, "; "));
    }
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
            checkpoint.string(), key, value, stored->second);
      }
    }
    if (options_.loop.no_load_optim) session_->publish_values();
    if (options_.loop.load == options_.loop.save) saved_iteration_ = state_.iteration;
    consecutive_skips_ = 0;
    say(fmt::format(
        "resumed {}: iteration {}, {} samples, {} tokens, learning rate {:.3E}, last loss {:.6f}",
        checkpoint.string(), state_.iteration, state_.consumed_samples, state_.consumed_tokens,
        state_.learning_rate, state_.lm_loss));
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
    return source.batch({.consumed_samples = consumed,
                         .global_batch = plan_.global_batch,
                         .micro_batch = options_.loop.micro_batch_size,
                         .rank = mesh_->coordinate(Axis::kData),
                         .ranks = mesh_->size(Axis::kData)});
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
                   state_.iteration == options_.loop.train_iters)) {
      metrics.validation_loss = evaluate();
      result.validation_loss = metrics.validation_loss;
    }
    if (metrics_) metrics_->write(metrics);
    log(metrics);
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
    say(fmt::format("validation loss at iteration {}: {:.6f} nats a token, perplexity {:.4f}",
                    state_.iteration, loss, std::exp(loss)));
    return loss;
  }

  void log(const StepMetrics& metrics) {
    const LoopOptions& loop = options_.loop;
    if (leads_) {
      const std::string note =
          fmt::format("loss {:.4f}, {:.0f} tokens/s", metrics.lm_loss, metrics.tokens_per_second);
      progress_.update({.done = state_.iteration,
                        .total = loop.train_iters,
                        .seconds = seconds_since(started_),
                        .note = note});
      note_ = note + "; ";
    }
    if (state_.iteration % loop.log_interval != 0 && state_.iteration != loop.train_iters) return;
    const double mean =
        seconds_since(started_) / static_cast<double>(state_.iteration - started_at_);
    const auto left =
        static_cast<std::int64_t>(mean * static_cast<double>(loop.train_iters - state_.iteration));
    std::string line = fmt::format(
        "iteration {:8}/{:8} | consumed samples: {:12} | elapsed time per iteration (ms): {:.1f} | "
        "learning rate: {:.3E} | global batch size: {:5} | lm loss: {:.6E} | loss scale: 1.0 | "
        "grad norm: {:.3f} | number of skipped iterations: {} | tokens per second: {:.0f} | "
        "TFLOP/s: {:.3f} | share of peak: {:.1f} % | time left: {}:{:02}:{:02} |",
        state_.iteration, loop.train_iters, state_.consumed_samples, metrics.elapsed_ms,
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
                      .total = options_.loop.train_iters,
                      .seconds = seconds_since(started_),
                      .note = fmt::format("{}{}: micro-batch {} of {}", note_, now,
                                          part.micro_batch + 1, plan_.micro_batches)});
  }

  void save() {
    const Clock::time_point start = Clock::now();
    const std::filesystem::path folder = save_checkpoint(
        options_.loop.save, stored_model(), store_context(), state_, resolved_.to_toml());
    saved_iteration_ = state_.iteration;
    say(fmt::format("saved {} in {:.1f} s", folder.string(), seconds_since(start)));
  }

  Machine machine_;
  const PretrainOptions& options_;
  const OptionSet& resolved_;
  const std::function<int()>& stop_;
  Progress& progress_;
  bool leads_;
  SilentLog silent_;  // of ranks that would repeat what the first one says
  RunPlan plan_;
  TrainState state_;
  std::unique_ptr<LearningRate> rate_;
  std::unique_ptr<BatchSource> train_;
  std::unique_ptr<BatchSource> valid_;
  std::unique_ptr<Mesh> mesh_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<MetricsFile> metrics_;
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
                        const OptionSet& resolved, const std::function<int()>& stop,
                        Progress& progress) {
  Run run(machine, options, resolved, stop, progress);  // outlives the report
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
