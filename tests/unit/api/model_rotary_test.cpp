// Losses and gradients of a LLaMA with scaled, partial and interleaved rotary positions, against
// Transformers (tests/golden/rotary.jsonl).
#include <gtest/gtest.h>

#include <cmath>

#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "support/golden_model.h"
#include "support/golden_rotary.h"
#include "support/instruction_sets.h"

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
  const auto kernels = dtype == DType::kF64 ? make_reference_kernels()
                                            : make_cpu_kernels(threads, test::chosen_isa());
  Arena arena(device);
  const auto stream = device.make_stream();
  const auto world = make_single_world(device);
  const Machine machine{*world, device, *kernels, arena, *stream, threads, log};
  Mesh mesh(*world, MeshSizes{});
  Session session(machine, mesh, {.model = model_of(golden, dtype), .use = SessionUse::kGradients});
  test::set_golden_weights(session, file, *stream);
  Answer answer{.loss = session.gradients({test::golden_batch(file)}, 0).loss};
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
      EXPECT_NEAR(answer.gradient_norm, golden.gradient_norm, tolerance * golden.gradient_norm)
          << name(dtype);
    }
  }
  EXPECT_EQ(compared, 13);
}

}  // namespace
}  // namespace piton
