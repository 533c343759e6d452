// ranks: 2 4
// BERT and T5 in layouts: the gradients of each parameter, the norms, and the weights after some
// steps are those of one process.
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/gathered_values.h"
#include "layout_cases.h"
#include "ranks/setting.h"

namespace piton::ranks::encoder_layouts_test {

namespace {

using ranks::optimizer_of;
using ranks::small;
using test::mesh;
using test::RunLayout;
using test::TrainingRun;

// Of each parameter of this rank, as that of one process. Tensor ranks have whole gradients of what
// is not split, or their part of the rows or columns: the squares of the parts add up.
void expect_gradients_of(TrainingRun& one, TrainingRun& run) {
  const auto alone = one.gradients();
  const auto own = run.gradients();
  Communicator& tensor = run.session().mesh().group(Axis::kTensor);
  const auto squares = [](const std::vector<double>& x) {
    return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  };
  double whole = 0;
  for (const auto& [parameter, one_gradient] : alone) whole += squares(one_gradient);
  for (const auto& [parameter, gradient] : own) {
    SCOPED_TRACE(parameter);
    const std::vector<double>& wanted = alone.at(parameter);
    double sum = squares(gradient);
    if (gradient.size() < wanted.size()) {
      const std::vector<double> parts = gathered_values(tensor, sum);
      sum = std::accumulate(parts.begin(), parts.end(), 0.0);
    } else {
      double difference = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double one_difference = gradient[i] - wanted[i];
        difference += one_difference * one_difference;
      }
      EXPECT_LE(difference, 1e-9 * squares(wanted) + 1e-12 * whole);
    }
    EXPECT_NEAR(sum, squares(wanted), 1e-4 * squares(wanted) + 1e-12 * whole);
  }
}

TEST(Gradients, OfEncodersAreThoseOfOneProcess) {
  std::vector<RunLayout> meshes;
  if (ranks::world().size() == 2) {
    meshes.push_back({.name = "TP 2", .mesh = mesh(2, 1, 1)});
    meshes.push_back({.name = "PP 2", .mesh = mesh(1, 1, 2), .split = 1});
  } else {
    meshes.push_back({.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2), .split = 1});
    meshes.push_back({.name = "PP 4", .mesh = mesh(1, 1, 4), .split = 2});
  }
  for (const char* name : {"bert-tiny", "t5-tiny", "t5, published"}) {
    const ModelConfig model = small(name);
    HostDevice device;
    const auto world = make_single_world(device);
    for (const RunLayout& layout : meshes) {
      TrainingRun one(*world, {.name = "one process"}, model);
      TrainingRun run(ranks::world(), layout, model);
      for (int step = 0; step < 3; ++step) {
        SCOPED_TRACE(fmt::format("{}, {}, step {}", name, layout.name, step));
        expect_gradients_of(one, run);
        one.step();
        run.step();
      }
    }
  }
}

// Norms of the gradients, and the weights after ten steps, by the pieces of this rank.
TEST(Stages, OfAnEncoderAndADecoderHaveTheNormsAndWeightsOfOneProcess) {
  for (const char* name : {"t5-tiny", "t5, published"}) {
    const ModelConfig model = small(name);
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun one(*world, {.name = "one process", .optimizer = optimizer_of("t5-tiny")}, model);
    std::vector<double> norms;
    for (int step = 0; step < 10; ++step) norms.push_back(one.step().grad_norm);
    const std::map<std::string, std::string> whole = one.pieces();
    const auto all = ranks::all_layouts_of(name, ranks::world().size());
    for (RunLayout layout : test::sampled(all, model.gated ? 3 : 1, 1)) {
      if (layout.mesh[Axis::kPipeline] == 1 || layout.mesh[Axis::kTensor] > 1) continue;
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      layout.optimizer = optimizer_of("t5-tiny");
      TrainingRun run(ranks::world(), layout, model);
      for (const double norm : norms) ASSERT_NEAR(run.step().grad_norm, norm, 1e-5 * norm);
      for (const auto& [key, bytes] : run.pieces()) {
        const std::string& wanted = whole.at(key);
        ASSERT_EQ(bytes.size(), wanted.size()) << key;
        double difference = 0;
        double squares = 0;
        for (std::size_t i = 0; i < bytes.size(); i += sizeof(float)) {
          float got = 0;
          float expected = 0;
          std::memcpy(&got, &bytes[i], sizeof(float));
          std::memcpy(&expected, &wanted[i], sizeof(float));
          difference += (got - expected) * (got - expected);
          squares += expected * expected;
        }
        EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(squares) + 1e-6) << key;
      }
    }
  }
}

}  // namespace
}  // namespace piton::ranks::encoder_layouts_test
