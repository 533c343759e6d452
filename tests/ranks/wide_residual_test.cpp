// ranks: 2 4
// --fp32-residual-connection in bf16, with dropout: any layout gives the losses of one process, up
// to the rounding of sums over tensor ranks; what stages send is fp32. And linears in FP8, whose
// scales are of the part of a rank.
#include "layout_cases.h"
#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks::wide_residual_test {

namespace {

using ranks::small;
using test::mesh;
using test::RunLayout;
using test::TrainingRun;

const int kSteps = test::nightly() ? 8 : 5;

ModelConfig wide(const char* name, bool in_fp32 = true) {
  ModelConfig model = small(name);
  model.dtype = DType::kBF16;
  model.fp32_residual = in_fp32;
  return model;
}

TEST(WideResidual, GivesTheLossesOfOneProcessUnderEveryLayout) {
  for (const char* name :
       {"gpt2-tiny", "llama-tiny", "gemma", "bert-tiny", "t5-tiny", "t5, published"}) {
    const ModelConfig model = wide(name);
    std::vector<double> alone;
    {
      HostDevice device;
      const auto world = make_single_world(device);
      TrainingRun run(*world, {.name = "one process"}, model);
      alone = run.losses(kSteps);
    }
    ASSERT_LT(alone.back(), alone.front());
    for (const RunLayout& layout : ranks::layouts_of(name, ranks::world().size())) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, model);
      const std::vector<double> losses = run.losses(kSteps);
      // The first loss is before any update. Sums over tensor or context ranks round parts to bf16.
      const bool whole = layout.mesh[Axis::kTensor] == 1 && layout.mesh[Axis::kContext] == 1;
      EXPECT_NEAR(losses[0], alone[0], (whole ? 1e-6 : 2e-3) * alone[0]);
      for (std::size_t step = 1; step < losses.size(); ++step)
        ASSERT_NEAR(losses[step], alone[step], 1e-2 * alone[step]) << "step " << step;
    }
  }
}

TEST(WideResidual, SendsItsStreamInFp32) {
  const int stages = ranks::world().size();
  std::int64_t sent[2] = {};
  for (const bool in_fp32 : {false, true}) {
    ModelConfig model = wide("llama-tiny", in_fp32);
    TrainingRun run(ranks::world(), {.name = "stages", .mesh = mesh(1, 1, stages)}, model);
    const std::int64_t before = ranks::world().traffic().point_to_point_bytes;
    run.losses(2);
    sent[in_fp32] = ranks::world().traffic().point_to_point_bytes - before;
  }
  EXPECT_GT(sent[0], 0);
  EXPECT_EQ(sent[1], 2 * sent[0]);
}

Float8Rules in_float8(Float8Recipe recipe) {
  return {.products = {.recipe = recipe, .gradients = Float8Format::kE5M2}};
}

TEST(Float8, GivesTheLossesOfOneProcessUnderEveryLayout) {
  int number = 0;
  for (const char* name : {"llama-tiny", "gpt2-tiny"}) {
    for (const Float8Recipe recipe : {Float8Recipe::kTensorwise, Float8Recipe::kBlockwise}) {
      const ModelConfig model = wide(name, /*in_fp32=*/false);
      std::vector<double> alone;
      {
        HostDevice device;
        const auto world = make_single_world(device);
        RunLayout layout{.name = "one process"};
        layout.float8 = in_float8(recipe);
        alone = TrainingRun(*world, layout, model).losses(kSteps);
      }
      ASSERT_LT(alone.back(), alone.front());
      for (RunLayout& layout : ranks::layouts_of(name, ranks::world().size())) {
        if (number++ % test::one_of(5) != 0) continue;
        SCOPED_TRACE(fmt::format("{}, recipe {}, {}", name, static_cast<int>(recipe), layout.name));
        layout.float8 = in_float8(recipe);
        const std::vector<double> losses =
            TrainingRun(ranks::world(), layout, model).losses(kSteps);
        // With the same micro-batches, and without tensor and context ranks, each product has the
        // numbers that it has on one process.
        const bool whole = layout.mesh[Axis::kTensor] == 1 && layout.mesh[Axis::kContext] == 1 &&
                           layout.sizes.empty() && layout.micro == RunLayout().micro;
        EXPECT_NEAR(losses[0], alone[0], (whole ? 1e-6 : 4e-3) * alone[0]);
        for (std::size_t step = 1; step < losses.size(); ++step)
          ASSERT_NEAR(losses[step], alone[step], 1e-2 * alone[step]) << "step " << step;
      }
    }
  }
}

// Of the weights in layers alone: not of the embedding, the head, and layers that stay in bf16.
TEST(Float8, GradientsAreNearThoseOfBf16) {
  ModelConfig model = wide("llama-tiny", /*in_fp32=*/false);
  model.hidden_dropout = 0;
  model.attention_dropout = 0;
  HostDevice device;
  const auto world = make_single_world(device);
  const auto gradients = [&](const Float8Rules& rules) {
    RunLayout layout{.name = "one process"};
    layout.float8 = rules;
    return TrainingRun(*world, layout, model).gradients();
  };
  const auto in_bf16 = gradients({});
  for (const Float8Recipe recipe : {Float8Recipe::kTensorwise, Float8Recipe::kBlockwise}) {
    const double difference = test::largest_difference(gradients(in_float8(recipe)), in_bf16);
    EXPECT_GT(difference, 0.02);
    EXPECT_LT(difference, 0.3);
  }
  Float8Rules none = in_float8(Float8Recipe::kTensorwise);
  none.first_in_bf16 = model.layers - 1;
  none.last_in_bf16 = 1;
  EXPECT_EQ(gradients(none), in_bf16);
}

}  // namespace
}  // namespace piton::ranks::wide_residual_test
