// Steps of training that are recorded as CUDA graphs have the bits of steps whose calls are
// launched one by one: losses, norms, weights and the state of the optimizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda_emulator/capture.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "kernels/cuda/kernels.h"
#include "model/lora/lora_options.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::cuda {
namespace {

constexpr std::int64_t kLength = 8;

ModelConfig dropping(const std::string& name, DType dtype) {
  ModelConfig model = preset(name);
  model.layers = 1;
  model.vocabulary = 37;
  model.hidden = model.ffn_hidden = 32;
  model.heads = model.groups = 2;
  model.head_size = 16;
  model.max_positions = kLength;
  model.hidden_dropout = model.attention_dropout = 0.1;  // masks change from step to step
  model.dtype = dtype;
  return model;
}

struct StepsSettings {
  ModelConfig model;
  OptimizerOptions optimizer = {};
  RecomputeRules recompute = {};
  Float8Products float8 = {};
  int zero_stage = 0;
  Adapters adapters = {};
};

// Throws where the device is asked to record.
class UnrecordedKernels final : public ForwardingKernels {
 public:
  using ForwardingKernels::ForwardingKernels;
  bool refuses = false;

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    if (refuses && emulator::captures()) throw Error(Fault::kPeer, "a graph without room");
    inner_.run(call, stream);
  }
  void submit_chains(const std::vector<CallChain>& chains, Stream& stream) override {
    inner_.run_chains(chains, stream);
  }
};

class KeptLines final : public Log {
 public:
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

class StepsRun {
 public:
  StepsRun(const StepsSettings& settings, bool records)
      : device_(make_device()),
        inner_(make_kernels(*device_)),
        guarded_(*inner_),
        kernels_(guarded_),
        world_(make_single_world(*device_)),
        arena_(*device_, std::int64_t{1} << 20),
        stream_(device_->make_stream()),
        machine_{*world_, *device_, kernels_, arena_, *stream_, threads_, log_},
        mesh_(*world_, test::mesh(1, 1, 1)),
        session_(machine_, mesh_,
                 {.model = settings.model,
                  .layout = {.recompute = settings.recompute,
                             .float8 = {.products = settings.float8},
                             .vocabulary_multiple = 16},
                  .zero_stage = settings.zero_stage,
                  .micro_batches = 2,
                  .seed = 11,
                  .optimizer_options = settings.optimizer,
                  .adapters = settings.adapters}) {
    session_.initialize();
    session_.record_steps(records);
  }

  // Samples of micro-batches. The rates are others in each step.
  void step(const std::vector<std::int64_t>& sizes) {
    const double step = static_cast<double>(reports_.size());
    GroupRates rates = 1e-2 / (1 + step);
    rates.vocabulary = 1e-3;
    reports_.push_back(session_.train_step(batches(sizes), consumed_, rates, 0.1 + step / 100));
    for (const std::int64_t size : sizes) consumed_ += size;
  }
  double evaluate() { return session_.evaluate(batches({3})).loss_sum; }

  double optimizer_norm() { return session_.optimizer().figures(*stream_).params_norm; }

  // Bytes of weights, main copies, moments and gradients.
  std::vector<std::vector<std::byte>> state() {
    std::vector<std::vector<std::byte>> all;
    for (const Tensor& tensor : state_tensors()) {
      all.emplace_back(static_cast<std::size_t>(tensor.bytes()));
      device_->download(tensor, all.back().data(), *stream_);
    }
    return all;
  }

  // As when a run continues from a checkpoint.
  void take_state_of(StepsRun& other) {
    const std::vector<std::vector<std::byte>> all = other.state();
    const std::vector<Tensor> tensors = state_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      device_->upload(all[i].data(), tensors[i], *stream_);
    session_.optimizer().set_progress(other.session_.optimizer().progress());
    consumed_ = other.consumed_;
    reports_ = other.reports_;
  }

  // Of activations, between two steps.
  Tensor hold(std::int64_t bytes) {
    const Tensor held = arena_.allocate(DType::kU8, {bytes}, MemoryKind::kWorkspace, *stream_);
    device_->zero(held, *stream_);
    return held;
  }
  bool still_zero(const Tensor& held) {
    std::vector<std::uint8_t> host(static_cast<std::size_t>(held.bytes()));
    device_->download(held, host.data(), *stream_);
    return std::ranges::all_of(host, [](std::uint8_t byte) { return byte == 0; });
  }

  const std::vector<StepReport>& reports() const { return reports_; }
  Session& session() { return session_; }
  Arena& arena() { return arena_; }
  UnrecordedKernels& kernels() { return kernels_; }
  const std::vector<std::string>& lines() const { return log_.lines; }

 private:
  std::vector<MicroBatch> batches(const std::vector<std::int64_t>& sizes) const {
    const std::int64_t words = session_.settings().model.vocabulary;
    std::vector<MicroBatch> all;
    std::int64_t sample = 0;
    for (const std::int64_t size : sizes) {
      MicroBatch batch{.samples = size, .sequence = kLength, .sample_index = sample};
      for (std::int64_t row = 0; row < size * kLength; ++row) {
        const std::int64_t of = consumed_ + sample + row / kLength;
        const std::int64_t place = row % kLength;
        batch.tokens.push_back(test::token(of, place, words));
        batch.labels.push_back(test::token(of, place + 1, words));
        batch.loss_mask.push_back(place > of % 3 ? 1.0F : 0.0F);
        batch.positions.push_back(static_cast<std::int32_t>(place));
      }
      sample += size;
      all.push_back(std::move(batch));
    }
    return all;
  }
  std::vector<Tensor> state_tensors() {
    std::vector<Tensor> tensors;
    for (Parameter* parameter : session_.parameters()) {
      tensors.push_back(parameter->value);
      if (parameter->trainable) tensors.push_back(parameter->gradient);
    }
    for (const OptimizerState& state : session_.optimizer().state()) {
      tensors.push_back(state.main);
      for (const Moment& moment : state.moments) tensors.push_back(moment.values);
    }
    return tensors;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Kernels> inner_;
  emulator::GuardedKernels guarded_;
  UnrecordedKernels kernels_;
  std::unique_ptr<World> world_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  ThreadPool threads_{1};
  KeptLines log_;
  Machine machine_;
  Mesh mesh_;
  Session session_;
  std::int64_t consumed_ = 0;
  std::vector<StepReport> reports_;
};

void expect_equal(const StepReport& got, const StepReport& wanted, std::size_t step) {
  EXPECT_EQ(got.loss, wanted.loss) << "step " << step;
  const bool both_nan = std::isnan(got.grad_norm) && std::isnan(wanted.grad_norm);
  EXPECT_TRUE(got.grad_norm == wanted.grad_norm || both_nan) << "step " << step;
  EXPECT_EQ(got.skipped, wanted.skipped) << "step " << step;
  EXPECT_EQ(got.loss_scale, wanted.loss_scale) << "step " << step;
  ASSERT_EQ(got.figures.size(), wanted.figures.size());
  for (std::size_t i = 0; i < got.figures.size(); ++i)
    EXPECT_EQ(got.figures[i].sum, wanted.figures[i].sum) << got.figures[i].name;
}

using TakeSteps = std::function<void(StepsRun&)>;

// Expects so many launches of graphs. Returns the reports.
std::vector<StepReport> expect_bits_of_launches(const StepsSettings& settings,
                                                const TakeSteps& steps, int launches) {
  StepsRun wanted(settings, false);
  steps(wanted);
  StepsRun got(settings, true);
  EXPECT_EQ(got.session().obstacle_to_recording(), "");
  const int before = emulator::graph_launches();
  steps(got);
  EXPECT_EQ(emulator::graph_launches() - before, launches);
  EXPECT_EQ(got.reports().size(), wanted.reports().size());
  for (std::size_t i = 0; i < wanted.reports().size(); ++i)
    expect_equal(got.reports()[i], wanted.reports()[i], i);
  EXPECT_TRUE(got.state() == wanted.state());
  EXPECT_EQ(got.arena().counts().peak_total_bytes, wanted.arena().counts().peak_total_bytes);
  EXPECT_EQ(got.arena().counts().reserved_bytes, wanted.arena().counts().reserved_bytes);
  EXPECT_TRUE(got.lines().empty());
  return got.reports();
}

void four_steps(StepsRun& run) {
  for (int step = 0; step < 4; ++step) run.step({2, 1});
}

// The scale of the loss doubles after each update, until a gradient is not finite.
TEST(RecordedSteps, HaveTheBitsOfLaunchesAlsoWhereUpdatesAreSkipped) {
  StepsSettings settings{.model = dropping("gpt2-tiny", DType::kF16)};
  settings.optimizer.clip_grad = 0.5;
  settings.optimizer.initial_loss_scale = 1 << 22;
  settings.optimizer.loss_scale_window = 1;
  settings.optimizer.hysteresis = 1;
  const std::vector<StepReport> reports = expect_bits_of_launches(
      settings,
      [](StepsRun& run) {
        for (int step = 0; step < 6; ++step) run.step({2, 1});
      },
      9);
  std::vector<bool> skipped;
  for (const StepReport& report : reports) skipped.push_back(report.skipped);
  EXPECT_GT(std::ranges::count(skipped.begin() + 2, skipped.end(), true), 0);
  EXPECT_GT(std::ranges::count(skipped.begin() + 2, skipped.end(), false), 0);
}

TEST(RecordedSteps, OfExpertsAndRecomputationHaveTheBitsOfLaunches) {
  StepsSettings settings{.model = dropping("llama-tiny", DType::kBF16),
                         .recompute = RecomputeRules{RecomputeGranularity::kFull}};
  settings.model.experts = ExpertFacts{.experts = 4, .choices = 2, .balance_factor = 0.01};
  settings.model.mtp_layers = 1;
  expect_bits_of_launches(settings, four_steps, 5);
}

TEST(RecordedSteps, InFp8HaveTheBitsOfLaunches) {
  const StepsSettings settings{
      .model = dropping("llama-tiny", DType::kBF16),
      .float8 = {.recipe = Float8Recipe::kTensorwise, .gradients = Float8Format::kE5M2}};
  expect_bits_of_launches(settings, four_steps, 5);
}

TEST(RecordedSteps, OfOtherOptimizersAndAdaptersHaveTheBitsOfLaunches) {
  std::vector<StepsSettings> all;
  StepsSettings settings{.model = dropping("llama-tiny", DType::kF32)};
  settings.model.hidden_dropout = settings.model.attention_dropout = 0;
  settings.optimizer.kind = OptimizerKind::kMuon;
  settings.optimizer.separate_rates = {RateGroup::kVocabulary};
  all.push_back(settings);
  settings.optimizer.kind = OptimizerKind::kSgd;
  settings.optimizer.spike_sigmas = 3;
  settings.optimizer.average_decay = 0.9;
  settings.zero_stage = 1;
  all.push_back(settings);
  settings.optimizer = {.kind = OptimizerKind::kCadam};
  settings.zero_stage = 0;
  all.push_back(settings);
  settings.optimizer = {};
  LoraOptions lora;
  lora.target_modules = {"all-linear"};
  lora.rank = 4;
  settings.adapters = lora.resolve(settings.model);
  settings.adapters.dropout = 0.1;
  all.push_back(settings);
  for (const StepsSettings& one : test::sampled(all, all.size(), 1)) {
    SCOPED_TRACE(static_cast<int>(one.optimizer.kind));
    expect_bits_of_launches(one, four_steps, 5);
  }
}

// Each number of micro-batches has its recording. The inputs of a new one may get memory of another
// one, which is then made again.
TEST(RecordedSteps, OfBatchesThatGrowHaveTheBitsOfLaunches) {
  const StepsSettings settings{.model = dropping("gpt2-tiny", DType::kF32)};
  StepsRun wanted(settings, false);
  StepsRun got(settings, true);
  int launches = 0;
  for (StepsRun* run : {&wanted, &got}) {
    for (int step = 0; step < 2; ++step) run->step({2});
    for (int step = 0; step < 2; ++step) run->step({2, 2});
    run->step({1, 3});
    for (int round = 0; round < 2; ++round) {
      launches = emulator::graph_launches();
      run->step({2});
      run->step({2, 2});
    }
  }
  EXPECT_EQ(emulator::graph_launches() - launches, 4);
  for (std::size_t i = 0; i < wanted.reports().size(); ++i)
    expect_equal(got.reports()[i], wanted.reports()[i], i);
  EXPECT_TRUE(got.state() == wanted.state());
}

// Evaluations use the memory of a recording, and reading weights and figures does; none of them
// changes a step.
TEST(RecordedSteps, AreNotChangedByEvaluationsSavesAndFigures) {
  const auto between = [](StepsRun& run) {
    for (int step = 0; step < 5; ++step) {
      run.step({2, 1});
      if (step < 2) continue;
      const double loss = run.evaluate();
      EXPECT_EQ(run.evaluate(), loss);
      run.state();
      EXPECT_GT(run.optimizer_norm(), 0);
    }
  };
  expect_bits_of_launches({.model = dropping("llama-tiny", DType::kBF16)}, between, 3 + 4);
}

// Someone keeps memory that activations had. Steps leave it alone: they are launched, and recorded
// elsewhere.
TEST(RecordedSteps, LeaveMemoryAloneThatOthersHold) {
  std::vector<Tensor> held;
  const auto hold = [&](StepsRun& run) {
    for (int step = 0; step < 7; ++step) {
      run.step({2, 1});
      if (step == 3) held.push_back(run.hold(40000));
      if (step > 3) {
        EXPECT_TRUE(run.still_zero(held.back()));
      }
    }
    held.clear();
  };
  // One step is launched to find the memory, and one more if that had to grow.
  StepsRun run({.model = dropping("gpt2-tiny", DType::kF32)}, true);
  const int before = emulator::graph_launches();
  hold(run);
  const int launches = emulator::graph_launches() - before;
  EXPECT_GE(launches, 2 + 1 + 6);
  EXPECT_LT(launches, 5 + 6);
  StepsRun wanted({.model = dropping("gpt2-tiny", DType::kF32)}, false);
  hold(wanted);
  EXPECT_TRUE(run.state() == wanted.state());
}

TEST(RecordedSteps, ContinueWithTheStateOfAnotherRun) {
  const StepsSettings settings{.model = dropping("gpt2-tiny", DType::kF32)};
  StepsRun wanted(settings, false);
  StepsRun got(settings, true);
  four_steps(wanted);
  for (int step = 0; step < 2; ++step) got.step({2, 1});  // of which nothing may remain
  got.take_state_of(wanted);
  four_steps(wanted);
  four_steps(got);
  for (std::size_t i = 0; i < wanted.reports().size(); ++i)
    expect_equal(got.reports()[i], wanted.reports()[i], i);
  EXPECT_TRUE(got.state() == wanted.state());
}

TEST(RecordedSteps, AreLaunchedWhereTheDeviceDoesNotRecordThem) {
  const StepsSettings settings{.model = dropping("gpt2-tiny", DType::kF32)};
  StepsRun wanted(settings, false);
  StepsRun got(settings, true);
  got.kernels().refuses = true;
  const int before = emulator::graph_launches();
  four_steps(wanted);
  four_steps(got);
  EXPECT_EQ(emulator::graph_launches(), before);
  EXPECT_TRUE(got.state() == wanted.state());
  ASSERT_EQ(got.lines().size(), 1);
  EXPECT_NE(got.lines()[0].find("a graph without room"), std::string::npos) << got.lines()[0];
}

}  // namespace
}  // namespace piton::cuda
