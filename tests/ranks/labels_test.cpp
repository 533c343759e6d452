// ranks: 2 4
// Classifiers of texts have the losses, norms, accuracies and counts of one process under any
// layout: a decoder whose labels no number of tensor ranks divides, and
// encoders with dropout, in the forms of BERT and of RoBERTa, whole and with adapters; numbers of
// texts, and several labels of each.
#include <algorithm>
#include <string>
#include <vector>

#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks::labels_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 4;

std::vector<RunLayout> layouts_of_labels(int ranks) {
  if (ranks == 2) {
    return {
        {.name = "TP 2", .mesh = mesh(2, 1, 1)},
        {.name = "TP 2 + SP, recompute",
         .mesh = mesh(2, 1, 1),
         .sequence_parallel = true,
         .recompute = true},
        {.name = "PP 2", .mesh = mesh(1, 1, 2)},
        {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(4)},
        {.name = "DP 2", .mesh = mesh(1, 2, 1)},
        {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
        {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
    };
  }
  return {
      {.name = "TP 2 x PP 2 + SP", .mesh = mesh(2, 1, 2), .sequence_parallel = true},
      {.name = "TP 2 x DP 2, ZeRO-3", .mesh = mesh(2, 2, 1), .zero = 3},
      {.name = "PP 2 x DP 2, ZeRO-1", .mesh = mesh(1, 2, 2), .zero = 1},
  };
}

ModelConfig small_classifier(const std::string& name) {
  const bool decoder = name.starts_with("llama");
  ModelConfig model = preset(decoder ? "llama-tiny" : "bert-tiny");
  model.vocabulary = 101;
  model.hidden_dropout = model.attention_dropout = 0.1;
  if (name.starts_with("roberta")) {
    model.encoder->post_norm = true;
    model.encoder->first_position = 2;
  }
  set_labels(model, {.count = name.find("number") != name.npos ? 1 : 5,
                     .regression = true,
                     .several = name.find("several") != name.npos});
  return model;
}

std::vector<double> numbers_of_labels(World& world, RunLayout layout, const std::string& name) {
  const ModelConfig model = small_classifier(name);
  if (name.ends_with("adapters")) {
    LoraOptions lora;
    lora.target_modules = {"all-linear"};
    lora.rank = 4;
    if (model.encoder) {
      lora.dropout = 0.1;
      lora.use_dora = name.starts_with("bert, magnitudes");
    }
    layout.adapters = lora.resolve(model);
  }
  TrainingRun run(world, layout, model);
  std::vector<double> numbers;
  for (int step = 0; step < kSteps; ++step) {
    const StepReport report = run.step();
    EXPECT_EQ(report.loss_tokens, test::kSamples);
    EXPECT_EQ(report.figures.size(), model.regression ? 0U : 1U);
    numbers.insert(numbers.end(), {report.loss, report.grad_norm});
    for (const ObjectiveFigure& figure : report.figures) {
      EXPECT_EQ(figure.name, "accuracy");
      EXPECT_EQ(figure.count, test::kSamples);
      numbers.push_back(figure.sum);
    }
  }
  const Session::Evaluation found = run.evaluation();
  numbers.push_back(found.loss_sum / found.loss_tokens);
  EXPECT_EQ(found.labels.texts(), test::kSamples);
  if (model.regression) {
    // Correlations are of these; of numbers that are nearly equal they magnify rounding.
    std::vector<double> given;
    for (const NumberOfText& one : found.labels.numbers) given.push_back(one.given);
    std::ranges::sort(given);
    numbers.insert(numbers.end(), given.begin(), given.end());
    EXPECT_NEAR(found.labels.mean_square(), found.loss_sum / found.loss_tokens, 1e-5);
    return numbers;
  }
  numbers.push_back(found.labels.exact);
  for (const std::vector<double>& counts :
       {found.labels.wanted, found.labels.predicted, found.labels.right}) {
    EXPECT_EQ(std::ssize(counts), model.labels);
    numbers.insert(numbers.end(), counts.begin(), counts.end());
  }
  return numbers;
}

class Labels : public testing::TestWithParam<const char*> {};

TEST_P(Labels, HaveTheLossesAndCountsOfOneProcess) {
  HostDevice device;
  const auto world = make_single_world(device);
  const std::vector<double> alone = numbers_of_labels(*world, {.name = "one process"}, GetParam());
  for (const RunLayout& layout : layouts_of_labels(ranks::world().size())) {
    const std::string name = GetParam();
    SCOPED_TRACE(layout.name);
    const std::vector<double> numbers = numbers_of_labels(ranks::world(), layout, name);
    ASSERT_EQ(numbers.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(numbers[i], alone[i], 2e-5 * (1 + std::abs(alone[i]))) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Labels,
                         testing::Values("llama", "llama, adapters", "llama, number",
                                         "llama, several", "bert", "bert, number", "bert, several",
                                         "llama, several, adapters", "roberta", "bert, adapters",
                                         "bert, magnitudes, adapters", "roberta, adapters"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return c == ',' || c == ' '; });
                           return name;
                         });

}  // namespace
}  // namespace piton::ranks::labels_test
