// The C interface: training runs.
#include "train/trainer.h"

#include <cmath>
#include <limits>

#include "data/samples/pretraining_samples.h"
#include "data/samples/token_source.h"
#include "library/handles.h"
#include "train/sinks/log_sink.h"

using namespace piton;           // NOLINT(google-build-using-namespace)
using namespace piton::library;  // NOLINT(google-build-using-namespace)

namespace {

// Samples `first` to `first + count - 1` that a program gives.
class ProgramSamples final : public TokenSource {
 public:
  ProgramSamples(const piton_samples& samples, std::int64_t first, std::int64_t count,
                 std::int64_t sequence)
      : samples_(samples), first_(first), count_(count), sequence_(sequence) {}
  std::int64_t size() const override { return count_; }
  std::int64_t sequence() const override { return sequence_; }
  void read(std::int64_t number, std::span<std::int32_t> ids) const override {
    const std::int64_t index = first_ + number;
    const auto length = static_cast<std::int64_t>(ids.size());
    if (samples_.read(samples_.user, index, ids.data(), length) == 0) return;
    throw Error(Fault::kData, "samples: the program could not give sample {}", index);
  }

 private:
  piton_samples samples_;
  std::int64_t first_;
  std::int64_t count_;
  std::int64_t sequence_;
};

OwnSamples::Make maker(const piton_samples& samples, std::int64_t first, std::int64_t count) {
  return [samples, first, count](const SampleSettings& settings) {
    return std::make_shared<PretrainingSamples>(
        std::make_shared<ProgramSamples>(samples, first, count, settings.sequence),
        settings.documents);
  };
}

PretrainOptions options_of(piton_words words) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  std::vector<std::string> all = copied(words);
  std::string recipe;
  if (!all.empty() && all.front().ends_with(".toml")) {
    recipe = all.front();
    all.erase(all.begin());
    set.read_toml(recipe);
  }
  const std::vector<std::string> rest = set.parse(all, "the program");
  options.changed = set.changed();
  if (!rest.empty()) {
    throw Error(Fault::kUsage, "got \"{}\", wanted options, after at most one RECIPE.toml",
                rest.front());
  }
  return options;
}

}  // namespace

struct piton_trainer {
  explicit piton_trainer(std::shared_ptr<OpenedEngine> opened)
      : engine(std::move(opened)), log(engine->log, {}) {}
  std::shared_ptr<OpenedEngine> engine;
  LogSink log;
  std::unique_ptr<Trainer> trainer;  // uses both
};

int piton_trainer_open(piton_engine* engine, piton_words words, const piton_samples* samples,
                       piton_trainer** result, piton_error* error) {
  return guarded(error, [&] {
    require(result, "result");
    *result = nullptr;
    require(engine, "engine");
    const PretrainOptions options = options_of(words);
    auto opened = std::make_unique<piton_trainer>(engine->opened);
    OwnSamples own;
    if (samples != nullptr) {
      require(reinterpret_cast<const void*>(samples->read), "samples.read");
      if (samples->count < 1) {
        throw Error(Fault::kUsage, "samples: got {}, wanted at least one", samples->count);
      }
      own.name = samples->name != nullptr ? samples->name : "";
      if (samples->validation_count < 0) {
        throw Error(Fault::kUsage, "samples.validation_count: got {}, wanted 0 or more",
                    samples->validation_count);
      }
      own.make = maker(*samples, 0, samples->count);
      if (samples->validation_count > 0) {
        own.make_validation = maker(*samples, samples->count, samples->validation_count);
      }
    }
    Engine& resources = opened->engine->engine;
    opened->trainer = std::make_unique<Trainer>(
        resources.machine(), options, std::vector<RunSink*>{&opened->log},
        TrainerInputs{.samples = std::move(own), .planner = &resources.planner()});
    *result = opened.release();
  });
}

void piton_trainer_close(piton_trainer* trainer) { delete trainer; }

int piton_trainer_done(const piton_trainer* trainer) {
  if (trainer == nullptr) return kNullHandle;
  return trainer->trainer->done() ? 1 : 0;
}
int piton_trainer_save_due(const piton_trainer* trainer) {
  if (trainer == nullptr) return kNullHandle;
  return trainer->trainer->save_due() ? 1 : 0;
}
int64_t piton_trainer_iteration(const piton_trainer* trainer) {
  return trainer == nullptr ? kNullHandle : trainer->trainer->state().iteration;
}
int64_t piton_trainer_sequence(const piton_trainer* trainer) {
  return trainer == nullptr ? kNullHandle : trainer->trainer->plan().sequence;
}

int piton_trainer_step(piton_trainer* trainer, piton_step* step, piton_error* error) {
  return guarded(error, [&] {
    require(trainer, "trainer");
    if (trainer->trainer->done()) {
      throw Error(Fault::kUsage, "step: the run has done its {} iterations; set more --train-iters",
                  trainer->trainer->state().iteration);
    }
    const StepMetrics metrics = trainer->trainer->step();
    if (step == nullptr) return;
    *step = {.iteration = metrics.iteration,
             .consumed_samples = metrics.consumed_samples,
             .consumed_tokens = metrics.consumed_tokens,
             .loss = metrics.lm_loss,
             .gradient_norm = metrics.grad_norm,
             .learning_rate = metrics.learning_rate,
             .tokens_per_second = metrics.tokens_per_second,
             .elapsed_ms = metrics.elapsed_ms,
             .validation_loss =
                 metrics.validation_loss.value_or(std::numeric_limits<double>::quiet_NaN()),
             .skipped = metrics.skipped};
  });
}

int piton_trainer_evaluate(piton_trainer* trainer, double* loss, piton_error* error) {
  return guarded(error, [&] {
    require(trainer, "trainer");
    require(loss, "loss");
    *loss = trainer->trainer->evaluate();
  });
}

int piton_trainer_save(piton_trainer* trainer, piton_error* error) {
  return guarded(error, [&] {
    require(trainer, "trainer");
    trainer->trainer->save();
  });
}

int piton_trainer_finish(piton_trainer* trainer, piton_error* error) {
  return guarded(error, [&] {
    require(trainer, "trainer");
    trainer->trainer->finish();
  });
}
