// Experts divided over ranks with an emulated GPU each. Single rows that go to the ranks of their
// experts give the bits of rows that all ranks gather, and the losses of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/hash.h"
#include "comm/nccl/world.h"
#include "comm/virtual/world.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "device/meta_device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/meta/kernels.h"
#include "model/lora/lora_options.h"
#include "plan/estimate.h"
#include "processes/forked_ranks.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::cuda {
namespace {

using test::RankEnd;
using test::run_ranks;

struct ExpertLayout {
  const char* name;
  DType dtype = DType::kF32;
  MeshSizes mesh;
  int zero = 0;
  RecomputeRules recompute = {};
  ScheduleSettings schedule = {};
  ExpertFacts experts = {.experts = 8, .choices = 2};
  bool adapted = false;
};

ModelConfig model_of(const ExpertLayout& layout) {
  ModelConfig model = preset("llama-tiny");
  model.layers = 2;
  model.vocabulary = 101;
  model.hidden_dropout = model.attention_dropout = 0.1;
  model.dtype = layout.dtype;
  model.experts = layout.experts;
  model.experts->ffn_hidden = 48;
  model.experts->balance_factor = 0.1;
  return model;
}

Adapters adapters_of(const ExpertLayout& layout) {
  if (!layout.adapted) return {};
  LoraOptions options;
  options.target_modules = {"all-linear"};
  options.rank = 4;
  options.dropout = 0.2;
  return options.resolve(model_of(layout));
}

SessionSettings settings_of(const ExpertLayout& layout, bool sends, int micro_batches) {
  return {.model = model_of(layout),
          .layout = {.recompute = layout.recompute,
                     .vocabulary_multiple = 16,
                     .sends_rows_to_experts = sends},
          .zero_stage = layout.zero,
          .schedule = layout.schedule,
          .micro_batches = micro_batches,
          .seed = 11,
          .adapters = adapters_of(layout)};
}

// What a rank has after its steps. Text, because ranks are processes.
struct ExpertSteps {
  std::vector<double> losses, norms;
  std::string bits;  // a hash of them, of the weights and of the state of the optimizer
  std::int64_t all_to_all_bytes = 0;
  std::int64_t counted_bytes = 0, planned_bytes = 0;  // the most memory at a time

  std::string text() const {
    return fmt::format("{} {} {} {} {} {}", fmt::join(losses, " "), fmt::join(norms, " "), bits,
                       all_to_all_bytes, counted_bytes, planned_bytes);
  }
};

constexpr int kExpertSteps = 2;

ExpertSteps steps_of(const std::string& text) {
  ExpertSteps steps;
  steps.losses.resize(kExpertSteps);
  steps.norms.resize(kExpertSteps);
  std::istringstream words(text);
  for (std::vector<double>* numbers : {&steps.losses, &steps.norms}) {
    for (double& one : *numbers) words >> one;
  }
  words >> steps.bits >> steps.all_to_all_bytes >> steps.counted_bytes >> steps.planned_bytes;
  return steps;
}

std::string bits_of(Session& session, const Machine& machine, const ExpertSteps& steps, int zero) {
  StreamHash hash;
  const auto add = [&](const Tensor& tensor) {
    if (!tensor.defined()) return;
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
    machine.device.download(tensor, bytes.data(), machine.stream);
    hash.add(bytes);
  };
  for (const std::vector<double>* numbers : {&steps.losses, &steps.norms})
    hash.add(std::as_bytes(std::span(*numbers)));
  for (Parameter* parameter : session.parameters()) {
    if (zero < 3) add(parameter->value);
  }
  for (const OptimizerState& state : session.optimizer().state()) {
    for (const Moment& moment : state.moments) add(moment.values);
  }
  return hash.hex();
}

std::int64_t planned_bytes(const SessionSettings& settings, const MeshSizes& sizes,
                           const Machine& machine) {
  MetaDevice device;
  MetaKernels kernels(&machine.kernels);
  Arena arena(device);
  const WorkspaceScope scope(kernels, arena);
  const auto stream = device.make_stream();
  const auto world = make_virtual_world(machine.world.rank(), machine.world.size());
  const Machine counted{*world, device, kernels, arena, *stream, machine.threads, machine.log};
  const auto count = static_cast<std::size_t>(settings.micro_batches);
  const RunPlan plan{.mesh = sizes,
                     .sequence = test::kSequence,
                     .micro_batch = 1,
                     .global_batch = 4,
                     .micro_batches = settings.micro_batches,
                     .micro_batch_sizes = std::vector<std::int64_t>(count, 1),
                     .session = settings};
  return estimate_rank(counted, plan).memory.peak_total_bytes;
}

ExpertSteps train(World& world, Device& device, Kernels& kernels, const ExpertLayout& layout,
                  bool sends) {
  ThreadPool threads(1);
  SilentLog log;
  Arena arena(device, std::int64_t{1} << 20);
  const WorkspaceScope scope(kernels, arena);
  const auto stream = device.make_stream();
  const Machine machine{world, device, kernels, arena, *stream, threads, log};
  Mesh mesh(world, layout.mesh);
  const int ranks = layout.mesh.sample_ranks();
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(4 / ranks), 1);
  const SessionSettings settings = settings_of(layout, sends, static_cast<int>(sizes.size()));
  Session session(machine, mesh, settings);
  session.initialize();
  const std::int64_t before = world.traffic().all_to_all_bytes;
  ExpertSteps steps;
  for (int step = 0; step < kExpertSteps; ++step) {
    const StepReport report = session.train_step(
        test::batches(4 * step, mesh.sample_rank(), ranks, settings.model.vocabulary, sizes),
        4 * step, 3e-3);
    steps.losses.push_back(report.loss);
    steps.norms.push_back(report.grad_norm);
  }
  steps.all_to_all_bytes = world.traffic().all_to_all_bytes - before;
  steps.counted_bytes = arena.counts().peak_total_bytes;
  steps.planned_bytes = planned_bytes(settings, layout.mesh, machine);
  steps.bits = bits_of(session, machine, steps, layout.zero);
  return steps;
}

std::vector<ExpertSteps> train_on_gpus(const ExpertLayout& layout, bool sends) {
  const int ranks = layout.mesh.ranks(), port = test::free_port();
  const auto ends = run_ranks(ranks, [&](int number) {
    const auto device = make_device();
    const auto kernels = make_kernels(*device);
    emulator::GuardedKernels guarded(*kernels);
    const auto world = make_nccl_world(*device, {.place = {.port = port,
                                                           .rank = number,
                                                           .size = ranks,
                                                           .host_rank = number,
                                                           .host_size = ranks},
                                                 .timeout_seconds = 60,
                                                 .library = PITON_FAKE_NCCL});
    return train(*world, *device, guarded, layout, sends).text();
  });
  std::vector<ExpertSteps> all;
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.code, 0) << end.text;
    all.push_back(steps_of(end.text));
  }
  return all;
}

ExpertSteps train_alone(ExpertLayout layout) {
  layout.mesh = test::mesh(1, 1, 1);
  layout.zero = 0;
  layout.recompute = {};
  layout.schedule = {};
  HostDevice host;
  ThreadPool threads(1);
  const auto cpu = make_cpu_kernels(threads);
  const auto world = make_single_world(host);
  return train(*world, host, *cpu, layout, false);
}

class NcclExperts : public testing::TestWithParam<ExpertLayout> {};

TEST_P(NcclExperts, GivesTheBitsOfGatheredRowsIfSingleRowsAreSent) {
  const ExpertLayout& layout = GetParam();
  const std::vector<ExpertSteps> gathered = train_on_gpus(layout, false);
  const std::vector<ExpertSteps> sent = train_on_gpus(layout, true);
  const ExpertSteps alone = train_alone(layout);
  EXPECT_NE(alone.losses[0], alone.losses[1]);
  const double tolerance = layout.dtype == DType::kF32 ? 1e-4 : 5e-3;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(sent[rank].bits, gathered[rank].bits);
    EXPECT_EQ(sent[rank].losses, gathered[rank].losses);
    EXPECT_EQ(gathered[rank].all_to_all_bytes, 0);
    EXPECT_GT(sent[rank].all_to_all_bytes, 0);
    for (std::size_t i = 0; i < kExpertSteps; ++i) {
      EXPECT_NEAR(sent[rank].losses[i], alone.losses[i], tolerance) << "loss of step " << i;
      EXPECT_NEAR(sent[rank].norms[i], alone.norms[i], 10 * tolerance * alone.norms[i]) << "norm";
    }
    const auto counted = static_cast<double>(sent[rank].counted_bytes);
    EXPECT_NEAR(static_cast<double>(sent[rank].planned_bytes), counted, 0.05 * counted);
  }
}

MeshSizes expert_ranks(int e, int tensor = 1, int pipeline = 1) {
  return test::with_experts(test::mesh(tensor, 1, pipeline), e);
}

const std::vector<ExpertLayout> kExpertLayouts = {
    {.name = "two", .mesh = expert_ranks(2)},
    {.name = "two_bf16_zero_3_again",
     .dtype = DType::kBF16,
     .mesh = expert_ranks(2),
     .zero = 3,
     .recompute = {.granularity = RecomputeGranularity::kFull}},
    {.name = "two_adapted", .mesh = expert_ranks(2), .adapted = true},
    {.name = "four_with_capacity",
     .mesh = expert_ranks(4),
     .experts = {.experts = 8, .choices = 3, .capacity_factor = 0.9}},
    {.name = "two_tensor_2", .dtype = DType::kBF16, .mesh = expert_ranks(2, 2)},
    {.name = "two_pipeline_2_zero_bubble",
     .mesh = expert_ranks(2, 1, 2),
     .schedule = {.kind = ScheduleKind::kZeroBubbleH1}},
    {.name = "two_mlp_again",
     .mesh = expert_ranks(2),
     .zero = 1,
     .recompute = {.granularity = RecomputeGranularity::kSelective, .parts = {.mlp = true}}}};
INSTANTIATE_TEST_SUITE_P(Layouts, NcclExperts, testing::ValuesIn(test::sampled(kExpertLayouts, 3)),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace piton::cuda
