// Whole training steps by the CUDA back end on the emulator: the losses are those of the CPU. By
// day two steps, and each family in one type.
#include <gtest/gtest.h>

#include <cmath>

#include "adapters/magnitude_source.h"
#include "adapters/quantized_source.h"
#include "checkpoint/load_values.h"
#include "comm/virtual/world.h"
#include "cuda_emulator/guarded_kernels.h"
#include "device/cuda/device.h"
#include "device/meta_device.h"
#include "kernels/cuda/kernels.h"
#include "kernels/meta/kernels.h"
#include "model/lora/lora_options.h"
#include "plan/estimate.h"
#include "support/run_session.h"
#include "support/sampled.h"
#include "unit/checkpoint/drawn_tensors.h"

namespace piton::cuda {
namespace {

ModelConfig tiny(const std::string& name, DType dtype) {
  ModelConfig model = preset(name);
  model.layers = 2;
  model.vocabulary = 101;
  model.hidden_dropout = model.attention_dropout = 0.1;  // the masks have to be the same
  model.dtype = dtype;
  return model;
}

struct Steps {
  std::vector<double> losses;
  std::vector<double> norms;
  std::int64_t counted_bytes = 0;  // the most that tensors and scratch took at a time
  std::int64_t planned_bytes = 0;  // what `plan` says of it
};

Adapters adapters_of(const ModelConfig& model) {
  LoraOptions options;
  options.target_modules = {"all-linear"};
  options.rank = 4;
  options.use_dora = !model.experts;
  options.dropout = model.experts ? 0.2 : 0;
  return options.resolve(model);
}

// The weights of a base in NF4, and the lengths of their rows.
void load_base(Session& session, const StoreContext& store, const Machine& machine) {
  const ModelConfig& model = session.settings().model;
  test::DrawnTensors source(model, 0.2);
  load_weights(source,
               {.parameters = base_parameters(session.parameters()), .sharded = &session.sharded()},
               store);
  QuantizedSource values(source, *code_format("", "nf4"),
                         {machine.kernels, machine.device, machine.arena, machine.stream});
  MagnitudeSource lengths(values, session.settings().adapters);
  load_weights(
      lengths,
      {.parameters = magnitude_parameters(session.parameters()), .sharded = &session.sharded()},
      store);
  session.publish_values();
}

// What `plan` says of the memory of one process with `machine`'s kernels, as api/planning.cpp asks.
std::int64_t planned_bytes(const SessionSettings& session, const Machine& machine) {
  MetaDevice device;
  MetaKernels kernels(&machine.kernels);
  Arena arena(device);
  const WorkspaceScope scope(kernels, arena);
  const auto stream = device.make_stream();
  const auto world = make_virtual_world(0, 1);
  const Machine counted{*world, device, kernels, arena, *stream, machine.threads, machine.log};
  const RunPlan plan{.mesh = test::mesh(1, 1, 1),
                     .sequence = test::kSequence,
                     .decoder_sequence = session.model.encoder_decoder ? test::kSequence / 2 : 0,
                     .micro_batch = 2,
                     .global_batch = 4,
                     .micro_batches = 2,
                     .micro_batch_sizes = {2, 2},
                     .session = session};
  return estimate_rank(counted, plan).memory.peak_total_bytes;
}

struct Setting {
  OptimizerKind optimizer = OptimizerKind::kAdam;
  bool adapted = false;
  Float8Products float8 = {};
};

Steps train(Device& device, Kernels& kernels, const ModelConfig& model, const Setting& setting) {
  const bool adapted = setting.adapted;
  ThreadPool threads(1);
  SilentLog log;
  const auto world = make_single_world(device);
  Arena arena(device, std::int64_t{1} << 20);
  const WorkspaceScope scope(kernels, arena);
  const auto stream = device.make_stream();
  const Machine machine{*world, device, kernels, arena, *stream, threads, log};
  Mesh mesh(*world, test::mesh(1, 1, 1));
  OptimizerOptions options{.kind = setting.optimizer};
  if (model.dtype == DType::kF16) options.loss_scale = 1024;  // so that no step is skipped
  Session session(
      machine, mesh,
      {.model = model,
       .layout = {.float8 = {.products = setting.float8}, .vocabulary_multiple = 16},
       .micro_batches = 2,
       .seed = 11,
       .optimizer_options = options,
       .adapters = adapted ? adapters_of(model) : Adapters(),
       .codes = adapted ? codes_in(*code_format("", "nf4"), "--qlora") : CodesOfParameter()});
  session.initialize();
  if (adapted) load_base(session, {mesh, device, arena, *stream, &threads}, machine);
  Steps steps;
  for (int step = 0; step < (test::nightly() ? 3 : 2); ++step) {
    const std::int64_t consumed = 4 * step;
    std::vector<MicroBatch> batches = test::batches(consumed, 0, 1, model.vocabulary, {2, 2});
    if (model.encoder_decoder) {
      for (MicroBatch& batch : batches) test::add_source(batch, consumed);
    }
    const StepReport report = session.train_step(batches, consumed, 3e-3);
    steps.losses.push_back(report.loss);
    steps.norms.push_back(report.grad_norm);
  }
  steps.counted_bytes = arena.counts().peak_total_bytes;
  steps.planned_bytes = planned_bytes(session.settings(), machine);
  return steps;
}

void expect_losses_of_the_cpu(const ModelConfig& model, double tolerance,
                              const Setting& setting = {}) {
  HostDevice host;
  ThreadPool threads(1);
  const auto cpu = make_cpu_kernels(threads);
  const auto device = make_device();
  const auto kernels = make_kernels(*device);
  emulator::GuardedKernels guarded(*kernels);
  const Steps wanted = train(host, *cpu, model, setting);
  const Steps got = train(*device, guarded, model, setting);
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_TRUE(std::isfinite(wanted.norms[i])) << "norm of step " << i;
    EXPECT_NEAR(got.losses[i], wanted.losses[i], tolerance) << "loss of step " << i;
    EXPECT_NEAR(got.norms[i], wanted.norms[i], 10 * tolerance * wanted.norms[i])
        << "norm of step " << i;
  }
  EXPECT_NE(wanted.losses.front(), wanted.losses.back());
  for (const Steps* steps : {&wanted, &got}) {
    EXPECT_EQ(steps->planned_bytes, steps->counted_bytes);
  }
}

// With a layer that predicts later tokens, over the tables of tokens and of positions.
TEST(EmulatedTraining, OfGpt2HasTheLossesOfTheCpu) {
  ModelConfig model = tiny("gpt2-tiny", DType::kF32);
  if (test::nightly()) expect_losses_of_the_cpu(model, 1e-4);
  model.mtp_layers = 1;
  expect_losses_of_the_cpu(model, 1e-4);
}

TEST(EmulatedTraining, OfLlamaHasTheLossesOfTheCpu) {
  if (!test::nightly()) GTEST_SKIP() << "by day in bf16, and with Muon";
  expect_losses_of_the_cpu(tiny("llama-tiny", DType::kF32), 1e-4);
}

TEST(EmulatedTraining, InBf16HasTheLossesOfTheCpu) {
  if (test::nightly()) expect_losses_of_the_cpu(tiny("gpt2-tiny", DType::kBF16), 5e-3);
  expect_losses_of_the_cpu(tiny("llama-tiny", DType::kBF16), 5e-3);
}

TEST(EmulatedTraining, InFp8HasTheLossesOfTheCpu) {
  for (const Float8Recipe recipe : {Float8Recipe::kTensorwise, Float8Recipe::kBlockwise}) {
    if (recipe == Float8Recipe::kTensorwise && !test::nightly()) continue;
    const Setting setting{.float8 = {.recipe = recipe, .gradients = Float8Format::kE5M2}};
    expect_losses_of_the_cpu(tiny("llama-tiny", DType::kBF16), 5e-3, setting);
    if (test::nightly()) expect_losses_of_the_cpu(tiny("gpt2-tiny", DType::kBF16), 5e-3, setting);
  }
}

// The first tokens of each row see one another; how many differs from row to row.
TEST(EmulatedTraining, OfPromptsThatSeeThemselvesHasTheLossesOfTheCpu) {
  ModelConfig model = tiny("gpt2-tiny", DType::kF32);
  model.prefix = true;
  expect_losses_of_the_cpu(model, 1e-4);
  if (!test::nightly()) return;
  model = tiny("llama-tiny", DType::kBF16);
  model.prefix = true;
  expect_losses_of_the_cpu(model, 5e-3);
}

// --fp32-residual-connection
TEST(EmulatedTraining, WithAStreamInFp32HasTheLossesOfTheCpu) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    ModelConfig model = tiny(name, name[0] == 'g' ? DType::kBF16 : DType::kF16);
    model.fp32_residual = true;
    expect_losses_of_the_cpu(model, 2e-3);
    if (!test::nightly()) return;
  }
}

// An encoder and a decoder with learned biases of distances, as T5 is published.
TEST(EmulatedTraining, WithBiasesOfDistancesHasTheLossesOfTheCpu) {
  ModelConfig model = tiny("t5-tiny", DType::kF32);
  model.encoder_decoder->encoder_layers = 1;
  model.layers = 1;
  model.positions = PositionKind::kRelative;
  model.norm = NormKind::kRms;
  model.biases = model.output_bias = model.qkv_biases = false;
  model.query_scalar = 1;
  model.encoder_decoder->head_bias = false;
  expect_losses_of_the_cpu(model, 1e-4);
}

TEST(EmulatedTraining, WithMuonHasTheLossesOfTheCpu) {
  expect_losses_of_the_cpu(tiny("llama-tiny", DType::kF32), 1e-3,
                           {.optimizer = OptimizerKind::kMuon});
}

// --qlora --use-dora
TEST(EmulatedTraining, OfAdaptersOverCodesHasTheLossesOfTheCpu) {
  expect_losses_of_the_cpu(tiny("llama-tiny", DType::kBF16), 5e-3, {.adapted = true});
  if (!test::nightly()) return;
  expect_losses_of_the_cpu(tiny("gpt2-tiny", DType::kF32), 1e-4, {.adapted = true});
}

// Of experts and an MLP next to them.
TEST(EmulatedTraining, OfAdaptersOfExpertsHasTheLossesOfTheCpu) {
  ModelConfig model = tiny("llama-tiny", DType::kF32);
  model.experts = ExpertFacts{.experts = 4, .choices = 2};
  model.experts->ffn_hidden = 48;
  model.experts->shared_ffn_hidden = 64;
  expect_losses_of_the_cpu(model, 1e-4, {.adapted = true});
}

}  // namespace
}  // namespace piton::cuda
