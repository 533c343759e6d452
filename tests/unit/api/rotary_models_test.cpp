// Losses and gradients of a LLaMA that turns by scaled, partial and interleaved rotary positions, against
// Transformers (tests/golden/rotary.jsonl).
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/safetensors.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "support/golden_rotary.h"
#include "support/tensors.h"
#include "train/session.h"

namespace piton {
namespace {

ModelConfig model_of(const test::GoldenRotary& golden, DType dtype) {
  ModelConfig model = family_facts("llama");
  model.layers = 2;
  model.hidden = 48;
  model.heads = 6;
  model.groups = 2;
  model.head_size = 8;
  model.ffn_hidden = 80;
  model.vocabulary = 97;
  model.max_positions = 32;
  model.dtype = dtype;
  model.rotary_base = golden.base;
  model.rotary_share = golden.share;
  model.rotary_pairs = golden.pairs;
  model.rotary_scaling = golden.scaling;
  model.check();
  return model;
}

struct Answer {
  double loss = 0;
  double gradient_norm = 0;
};

Answer answer_of(const test::GoldenRotary& golden, DType dtype) {
  const SafetensorsFile file(std::string(PITON_SOURCE_DIR) + "/tests/golden/llama.safetensors");
  HostDevice device;
  SilentLog log;
  ThreadPool threads(2);
  const auto kernels = dtype == DType::kF64 ? make_reference_kernels() : make_cpu_kernels(threads);
  Arena arena(device);
  const auto stream = device.make_stream();
  const auto world = make_single_world(device);
  const Machine machine{*world, device, *kernels, arena, *stream, threads, log};
  Mesh mesh(*world, MeshSizes{});
  Session session(machine, mesh, {.model = model_of(golden, dtype), .use = SessionUse::kGradients});
  for (Parameter* parameter : session.parameters()) {
    const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
    const std::int64_t columns = parameter->shape.ndim() > 1 ? parameter->shape[1] : 1;
    for (const Piece& piece : parameter->pieces) {
      std::int64_t at = piece.local_row * columns;
      for (const double value : test::values(file.tensor("weight." + piece.name))) test::set_value(rows, at++, value);
    }
    session.sharded().set_value(*parameter, rows, *stream);
  }
  session.publish_values();
  const Tensor tokens = file.tensor("tokens");
  MicroBatch batch{.samples = tokens.dim(0), .sequence = tokens.dim(1)};
  for (std::int64_t i = 0; i < tokens.elements(); ++i) {
    batch.tokens.push_back(tokens.data<std::int32_t>()[i]);
    batch.labels.push_back(file.tensor("labels").data<std::int32_t>()[i]);
    batch.loss_mask.push_back(file.tensor("mask").data<float>()[i]);
    batch.positions.push_back(static_cast<std::int32_t>(i % batch.sequence));
  }
  Answer answer{.loss = session.gradients({batch}, 0).loss};
  double squares = 0;
  for (Parameter* parameter : session.parameters()) {
    for (const double g : test::values(parameter->gradient)) squares += g * g;
  }
  answer.gradient_norm = std::sqrt(squares);
  return answer;
}

// Transformers' RMS norm and softmax go through fp32 even in a float64 model: 1e-7 in double.
TEST(RotaryModels, GiveTheLossAndTheGradientOfTransformers) {
  int compared = 0;
  for (const test::GoldenRotary& golden : test::golden_rotary()) {
    if (!golden.loss) continue;
    SCOPED_TRACE(golden.line);
    ++compared;
    for (const auto& [dtype, tolerance] : {std::pair{DType::kF64, 2e-7}, {DType::kF32, 1e-5}}) {
      const Answer answer = answer_of(golden, dtype);
      EXPECT_NEAR(answer.loss, *golden.loss, tolerance * *golden.loss) << name(dtype);
      EXPECT_NEAR(answer.gradient_norm, golden.gradient_norm, tolerance * golden.gradient_norm) << name(dtype);
    }
  }
  EXPECT_EQ(compared, 13);
}

}  // namespace
}  // namespace piton
