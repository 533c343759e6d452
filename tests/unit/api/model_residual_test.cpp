// --fp32-residual-connection: the sum of all branches stays in fp32 next to narrow weights.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "generate/inference.h"
#include "model/families.h"
#include "session/session.h"
#include "support/golden_model.h"
#include "support/host_machine.h"

namespace piton {
namespace {

constexpr std::int64_t kRows = 40;

// A deep model whose branches are small next to the stream that they are added to.
ModelConfig deep(const char* name, DType dtype, bool wide) {
  ModelConfig model = preset(name);
  model.layers = 16;
  model.dtype = dtype;
  model.fp32_residual = wide;
  model.hidden_dropout = model.attention_dropout = 0;
  return model;
}

struct DeepRun : test::HostMachine {
  explicit DeepRun(const ModelConfig& model)
      : mesh(*world, MeshSizes{}),
        session(machine, mesh, {.model = model, .seed = 3, .optimizer_options = scaled()}) {
    session.initialize();
  }

  // Gradients of fp16 do not vanish, and those of all types are comparable.
  static OptimizerOptions scaled() {
    OptimizerOptions options;
    options.loss_scale = 1024;
    return options;
  }

  // The weights of another run, in the type of this one.
  void take_weights(DeepRun& other) {
    std::map<std::string, Parameter*> theirs;
    for (Parameter* parameter : other.session.parameters()) theirs[parameter->name] = parameter;
    for (Parameter* parameter : session.parameters()) {
      const Tensor from =
          other.session.sharded().whole_value(*theirs.at(parameter->name), *other.stream);
      const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
      const std::vector<double> all = test::values(from);
      for (std::size_t i = 0; i < all.size(); ++i)
        test::set_value(rows, static_cast<std::int64_t>(i), all[i]);
      session.sharded().set_value(*parameter, rows, *stream);
    }
    session.publish_values();
  }

  static MicroBatch batch() {
    MicroBatch rows{.samples = 2, .sequence = kRows};
    for (std::int32_t i = 0; i < 2 * kRows; ++i) {
      rows.tokens.push_back(i * i * 7 % 101 + i % 13);
      rows.labels.push_back((i + 1) * (i + 1) * 7 % 101);
      rows.loss_mask.push_back(i % 7 != 0);
      rows.positions.push_back(i % static_cast<std::int32_t>(kRows));
    }
    return rows;
  }

  std::vector<double> logits() {
    const std::vector<std::int32_t> ids = batch().tokens;
    Inference inference(session.context(false), session.pipeline(), mesh, session.settings().model);
    return test::values(inference.logits(ids, 2));
  }

  std::vector<double> gradients() {
    session.gradients({batch()}, 0);
    std::vector<double> all;
    for (Parameter* parameter : session.parameters()) {
      const std::vector<double> one = test::values(parameter->gradient);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  Mesh mesh;
  Session session;
};

// The length of a - b, as a share of that of b.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double length = 0;
  EXPECT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    length += b[i] * b[i];
  }
  return std::sqrt(difference / length);
}

class WideResidual : public testing::TestWithParam<const char*> {};

TEST_P(WideResidual, IsNearerToTheModelInFp32) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(name(dtype));
    DeepRun narrow(deep(GetParam(), dtype, false));
    DeepRun wide(deep(GetParam(), dtype, true));
    DeepRun exact(deep(GetParam(), DType::kF32, false));
    exact.take_weights(narrow);
    const std::vector<double> wanted = exact.logits();
    EXPECT_LT(distance(wide.logits(), wanted), 0.7 * distance(narrow.logits(), wanted));
    EXPECT_LT(distance(wide.logits(), wanted), dtype == DType::kBF16 ? 1e-2 : 2e-3);
    const std::vector<double> slopes = exact.gradients();
    const double with = distance(wide.gradients(), slopes);
    EXPECT_LT(with, 0.9 * distance(narrow.gradients(), slopes));
    EXPECT_LT(with, dtype == DType::kBF16 ? 3e-2 : 1e-2);
  }
}

// Recomputed blocks give the same bits.
TEST_P(WideResidual, IsRecomputedToTheBit) {
  ModelConfig model = deep(GetParam(), DType::kBF16, true);
  model.layers = 4;
  model.hidden_dropout = model.attention_dropout = 0.1;
  DeepRun plain(model);
  const std::vector<double> wanted = plain.gradients();
  for (const RecomputeGranularity granularity :
       {RecomputeGranularity::kFull, RecomputeGranularity::kSelective}) {
    struct Again : test::HostMachine {
      Again(const ModelConfig& model, RecomputeGranularity granularity)
          : mesh(*world, MeshSizes{}),
            session(machine, mesh,
                    {.model = model,
                     .layout = {.recompute = {granularity}},
                     .seed = 3,
                     .optimizer_options = DeepRun::scaled()}) {
        session.initialize();
      }
      Mesh mesh;
      Session session;
    };
    Again run(model, granularity);
    run.session.gradients({DeepRun::batch()}, 0);
    std::vector<double> got;
    for (Parameter* parameter : run.session.parameters()) {
      const std::vector<double> one = test::values(parameter->gradient);
      got.insert(got.end(), one.begin(), one.end());
    }
    EXPECT_EQ(got, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WideResidual, testing::Values("gpt2-tiny", "llama-tiny"),
                         [](const auto& info) { return std::string(info.param, 4); });

}  // namespace
}  // namespace piton
