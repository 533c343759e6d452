// ranks: 2
// Weights held as codes: every layout has the codes, logits, losses and gradients of one process.
// Over an NF4 base adapters have the gradients that they have over its values.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "adapters/magnitude_source.h"
#include "adapters/quantized_source.h"
#include "checkpoint/load_values.h"
#include "generate/batched_engine.h"
#include "generate/generator.h"
#include "generate/inference.h"
#include "kernels/reference/kernels.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/errors.h"
#include "support/instruction_sets.h"
#include "support/run_session.h"
#include "unit/checkpoint/drawn_tensors.h"

namespace piton::ranks::codes_test {

namespace {

using test::DrawnTensors;
using test::mesh;
using test::RunLayout;
using test::TrainingRun;

// Two tensor ranks have whole groups of 64 columns, `wide` of 256.
ModelConfig model(bool wide = false) {
  ModelConfig model = preset("llama-tiny");
  model.hidden = 128;
  model.head_size = 32;
  model.ffn_hidden = 256;
  if (wide) {
    model.hidden = 512;
    model.heads = 16;
    model.groups = 16;
    model.layers = 2;
    model.ffn_hidden = 512;
  }
  model.vocabulary = 101;
  model.tied = false;
  return model;
}

CodesOfParameter codes(const std::string& word) {
  return codes_in(*code_format("--quantize", word), "--quantize");
}

// A model that only reads.
class Reading {
 public:
  Reading(World& world, const RunLayout& layout, const std::string& format,
          const ModelConfig& model = codes_test::model())
      : model_(model),
        pool_(1),
        kernels_(make_cpu_kernels(pool_, test::chosen_isa())),
        arena_(device_),
        stream_(device_.make_stream()),
        mesh_(world, layout.mesh),
        session_({world, device_, *kernels_, arena_, *stream_, pool_, log_}, mesh_,
                 {.model = model_,
                  .layout = {.vocabulary_multiple = 16},
                  .use = SessionUse::kInference,
                  .codes = format.empty() ? CodesOfParameter() : codes(format)}),
        inference_(session_.context(false), session_.pipeline(), mesh_, model_) {
    DrawnTensors source(model_, 0.2 * std::sqrt(128.0 / static_cast<double>(model_.hidden)));
    load_weights(source, {.parameters = session_.parameters(), .sharded = &session_.sharded()},
                 {mesh_, device_, arena_, *stream_, &pool_});
    session_.publish_values();
  }

  std::vector<double> losses() {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 41; ++i) ids.push_back(test::token(3, i, model_.vocabulary));
    DecodingRequest request{.prompt = ids};
    request.sampling = {.max_new_tokens = 0};
    request.scored_from = 1;
    const auto engine = make_batched_engine(inference_, {});
    std::vector<double> losses;
    const auto scored = score_prompts(*engine, {request});
    for (const GeneratedToken& token : scored.front()) losses.push_back(-token.log_probability);
    return losses;
  }
  std::int64_t parameter_bytes() const {
    return arena_.counts().in_use_bytes[static_cast<std::size_t>(MemoryKind::kParameters)];
  }

 private:
  ModelConfig model_;
  HostDevice device_;
  SilentLog log_;
  ThreadPool pool_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::unique_ptr<Stream> stream_;
  Mesh mesh_;
  Session session_;
  Inference inference_;
};

class Codes : public testing::TestWithParam<const char*> {};

TEST_P(Codes, GiveTheLossesOfOneProcessUnderEveryLayout) {
  HostDevice device;
  const auto world = make_single_world(device);
  const ModelConfig shape = model(/*wide=*/std::string(GetParam()).ends_with("_k"));
  Reading one(*world, {.mesh = mesh(1, 1, 1)}, GetParam(), shape);
  Reading plain(*world, {.mesh = mesh(1, 1, 1)}, "", shape);
  EXPECT_LT(one.parameter_bytes(), 0.5 * static_cast<double>(plain.parameter_bytes()));
  const std::vector<double> wanted = one.losses();
  const std::vector<double> unquantized = plain.losses();
  double change = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    change = std::max(change, std::abs(wanted[i] - unquantized[i]));
  EXPECT_GT(change, 1e-3);  // it is quantized
  EXPECT_LT(change, 2);
  for (const RunLayout& layout : {RunLayout{.name = "TP 2", .mesh = mesh(2, 1, 1)},
                                  RunLayout{.name = "PP 2", .mesh = mesh(1, 1, 2)}}) {
    SCOPED_TRACE(layout.name);
    Reading many(ranks::world(), layout, GetParam(), shape);
    EXPECT_LT(many.parameter_bytes(), 0.7 * static_cast<double>(one.parameter_bytes()));
    const std::vector<double> got = many.losses();
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 2e-5) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Codes,
                         testing::Values("int8", "q8_0", "q4_0", "nf4", "q4_k", "q6_k"));

TEST(CodesOnRanks, GroupsThatAreSplitAreRefused) {
  const std::string message =
      message_of(Fault::kUsage, [] { Reading(ranks::world(), {.mesh = mesh(2, 1, 1)}, "int4"); });
  EXPECT_EQ(message,
            "--quantize int4: a rank has 64 columns of layers.0.attention.output.weight, wanted "
            "whole groups of 128; use fewer tensor ranks or another format");
}

RunLayout adapted(RunLayout layout, bool quantized, bool magnitudes) {
  LoraOptions options;
  options.target_modules = {"all-linear"};
  options.rank = 4;
  options.use_dora = magnitudes;
  layout.adapters = options.resolve(model());
  if (quantized) layout.codes = codes("nf4");
  return layout;
}

void load_base(TrainingRun& run) {
  DrawnTensors source(model());
  load_weights(source,
               {.parameters = base_parameters(run.session().parameters()),
                .sharded = &run.session().sharded()},
               run.store());
  const Machine& machine = run.machine();
  QuantizedSource values(source, *code_format("", "nf4"),
                         {machine.kernels, machine.device, machine.arena, machine.stream});
  MagnitudeSource lengths(values, run.session().settings().adapters);
  if (!lengths.tensors(TensorKind::kWeight).empty()) {
    load_weights(lengths,
                 {.parameters = magnitude_parameters(run.session().parameters()),
                  .sharded = &run.session().sharded()},
                 run.store());
  }
  run.session().publish_values();
}

// Magnitudes are the lengths of the rows of the values.
void expect_lengths(TrainingRun& run, const std::string& weight, const Tensor& rows) {
  for (const Parameter* parameter : run.session().parameters()) {
    if (!parameter->name.ends_with(kAdapterMagnitude)) continue;
    for (const Piece& piece : parameter->pieces) {
      const std::string matrix = piece.name.substr(0, piece.name.size() - kAdapterMagnitude.size());
      if (weight != matrix + ".weight") continue;
      const std::vector<double> lengths =
          test::values(parameter->value.slice(0, piece.local_row, piece.extent[0]));
      for (std::int64_t row = 0; row < piece.extent[0]; ++row) {
        double sum = 0;
        for (const double one : test::values(rows.slice(0, row, 1))) sum += one * one;
        EXPECT_NEAR(lengths[static_cast<std::size_t>(row)], std::sqrt(sum), 1e-6 * std::sqrt(sum));
      }
    }
  }
}

class CodesUnderAdapters : public testing::TestWithParam<bool> {};

TEST_P(CodesUnderAdapters, OfNf4GiveTheGradientsOfTheirValues) {
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun quantized(*world, adapted({.mesh = mesh(1, 1, 1)}, true, GetParam()), model());
  load_base(quantized);
  TrainingRun plain(*world, adapted({.mesh = mesh(1, 1, 1)}, false, GetParam()), model());
  load_base(plain);
  // The values of the codes, by other kernels.
  const auto reference = make_reference_kernels();
  std::int64_t coded = 0, bytes = 0;
  for (const Parameter* parameter : quantized.session().parameters()) {
    if (!parameter->codes.given()) continue;
    coded += parameter->elements();
    bytes += parameter->codes.codes.bytes() + parameter->codes.scales.bytes();
    const Tensor rows = host_tensor(DType::kF32, parameter->shape);
    const auto stream = device.make_stream();
    reference->run(ExpandWeight{.rows = rows, .codes = parameter->codes}, *stream);
    for (const Piece& piece : parameter->pieces)
      expect_lengths(quantized, piece.name, rows.slice(0, piece.local_row, piece.extent[0]));
    for (Parameter* other : plain.session().parameters()) {
      if (other->name == parameter->name)
        plain.session().sharded().set_value(*other, rows, plain.machine().stream);
    }
  }
  EXPECT_GT(coded, 0);
  EXPECT_LE(static_cast<double>(bytes), 0.6 * static_cast<double>(coded));
  for (int step = 0; step < 2; ++step) {  // B is 0 before the first
    EXPECT_LT(test::largest_difference(quantized.gradients(), plain.gradients()), 1e-6);
    EXPECT_NEAR(quantized.step().loss, plain.step().loss, 1e-6);
  }
}

TEST_P(CodesUnderAdapters, OfNf4TrainAsOneProcessUnderEveryLayout) {
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, adapted({.mesh = mesh(1, 1, 1)}, true, GetParam()), model());
  load_base(one);
  const std::vector<double> wanted = one.losses(5);
  for (const RunLayout& layout : {RunLayout{.name = "TP 2", .mesh = mesh(2, 1, 1)},
                                  RunLayout{.name = "TP 2 + SP, recompute",
                                  .mesh = mesh(2, 1, 1),
                                  .sequence_parallel = true,
                                  .recompute = true},
                                  RunLayout{.name = "PP 2", .mesh = mesh(1, 1, 2)},
                                  RunLayout{.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
                                  RunLayout{.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3}}) {
    SCOPED_TRACE(layout.name);
    TrainingRun many(ranks::world(), adapted(layout, true, GetParam()), model());
    load_base(many);
    const std::vector<double> got = many.losses(5);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, CodesUnderAdapters, testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Dora" : "Lora"; });

}  // namespace
}  // namespace piton::ranks::codes_test
