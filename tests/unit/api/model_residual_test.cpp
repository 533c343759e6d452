// --fp32-residual-connection: the sum of all branches stays in fp32 next to narrow weights.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "generate/inference.h"
#include "model/families.h"
#include "session/session.h"
#include "support/golden_model.h"
#include "support/host_machine.h"
#include "support/run_session.h"
#include "support/sampled.h"

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

// Gives `to` the weights of another session, in its own type.
void copy_weights(Session& from, Session& to, Stream& stream) {
  std::map<std::string, Parameter*> theirs;
  for (Parameter* parameter : from.parameters()) theirs[parameter->name] = parameter;
  for (Parameter* parameter : to.parameters()) {
    const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
    const std::vector<double> all =
        test::values(from.sharded().whole_value(*theirs.at(parameter->name), stream));
    for (std::size_t i = 0; i < all.size(); ++i)
      test::set_value(rows, static_cast<std::int64_t>(i), all[i]);
    to.sharded().set_value(*parameter, rows, stream);
  }
  to.publish_values();
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
  const std::vector<DType> types = {DType::kBF16, DType::kF16};
  for (const DType dtype : test::sampled(types, 2, GetParam()[0] == 'g' ? 0 : 1)) {
    SCOPED_TRACE(name(dtype));
    DeepRun narrow(deep(GetParam(), dtype, false));
    DeepRun wide(deep(GetParam(), dtype, true));
    DeepRun exact(deep(GetParam(), DType::kF32, false));
    copy_weights(narrow.session, exact.session, *exact.stream);
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

// BERT with its pairs, and T5 with learned positions and as published.
TEST(WideResidualOfEncoders, IsNearerToTheModelInFp32) {
  const std::vector<const char*> models = {"bert-tiny", "t5-tiny", "published"};
  for (const char* name : test::sampled(models, 2)) {
    SCOPED_TRACE(name);
    const bool published = name == std::string("published");
    const auto model_of = [&](DType dtype, bool wide) {
      ModelConfig model = deep(published ? "t5-tiny" : name, dtype, wide);
      if (model.encoder_decoder) model.encoder_decoder->encoder_layers = 16;
      if (!published) return model;
      model.positions = PositionKind::kRelative;
      model.norm = NormKind::kRms;
      model.biases = model.output_bias = model.qkv_biases = false;
      model.query_scalar = 1;
      model.encoder_decoder->head_bias = false;
      return model;
    };
    HostDevice device;
    const auto world = make_single_world(device);
    const test::RunLayout layout{.name = "one process", .optimizer = DeepRun::scaled()};
    const auto gradients_of = [&](DType dtype, bool wide, test::TrainingRun* of) {
      auto run = std::make_unique<test::TrainingRun>(*world, layout, model_of(dtype, wide));
      if (of != nullptr) copy_weights(of->session(), run->session(), run->machine().stream);
      std::vector<double> all;
      for (const auto& [parameter, one] : run->gradients())
        all.insert(all.end(), one.begin(), one.end());
      return std::pair{std::move(run), all};
    };
    const auto [narrow, got] = gradients_of(DType::kBF16, false, nullptr);
    const auto [wide, wider] = gradients_of(DType::kBF16, true, nullptr);
    const auto [exact, wanted] = gradients_of(DType::kF32, false, narrow.get());
    EXPECT_LT(distance(wider, wanted), 0.9 * distance(got, wanted));
    EXPECT_LT(distance(wider, wanted), 3e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WideResidual, testing::Values("gpt2-tiny", "llama-tiny"),
                         [](const auto& info) { return std::string(info.param, 4); });

}  // namespace
}  // namespace piton
