// ranks: 2 4
// The loss of a global batch of samples of different lengths is the same packed and padded, on any
// ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "ranks/setting.h"
#include "ranks/state_spaces.h"
#include "support/conversations.h"
#include "support/run_session.h"

namespace piton::ranks::packing_test {

namespace {

using test::mesh;
using test::RowForm;

struct RowLayout {
  const char* name;
  MeshSizes sizes;
  bool sequence_parallel = false;
  ContextForms context = {};
  double noise = 0;
};

// With layers that have states, whose documents begin with none.
ModelConfig with_states() {
  ModelConfig model = preset("llama-tiny");
  model.delta = {.attention_every = 2,
                 .key_heads = 4,
                 .value_heads = 8,
                 .key_size = 6,
                 .value_size = 5,
                 .width = 3};
  return model;
}

ModelConfig with_state_spaces() {
  ModelConfig model = preset("llama-tiny");
  model.state_space = small_state_spaces(1);
  return model;
}

ModelConfig with_convolutions() {
  ModelConfig model = preset("llama-tiny");
  model.short_convolution = small_convolutions();
  return model;
}

double loss_of(World& in, const RowLayout& layout, RowForm form,
               const ModelConfig& model = preset("llama-tiny")) {
  test::TrainingRun run(in,
                        {.name = "rows",
                         .mesh = layout.sizes,
                         .sequence_parallel = layout.sequence_parallel,
                         .context = layout.context,
                         .embedding_noise = layout.noise},
                        model);
  Mesh& ranks = run.session().mesh();
  const auto batches = test::batch_of_conversations(
      form, model.vocabulary, 1, ranks.coordinate(Axis::kData), ranks.size(Axis::kData));
  return run.session().gradients(batches, 0).loss;
}

std::vector<RowLayout> row_layouts() {
  const bool four = world().size() == 4;
  std::vector<RowLayout> all{{"tensor", mesh(2, four ? 2 : 1, 1), false},
                             {"tensor, sequence parallel", mesh(2, four ? 2 : 1, 1), true},
                             {"context", test::with_context(mesh(1, four ? 2 : 1, 1), 2), false},
                             {"context, all-to-all",
                              test::with_context(mesh(1, four ? 2 : 1, 1), 2),
                              false,
                              {{ContextExchange::kHeads}}},
                             {"context, gathered",
                              test::with_context(mesh(1, four ? 2 : 1, 1), 2),
                              false,
                              {{ContextExchange::kGather}}},
                             {"data", mesh(1, four ? 4 : 2, 1), false},
                             {"pipeline", mesh(1, four ? 2 : 1, 2), false}};
  if (four) {
    all.push_back({"context, heads of 2, rings of 2",
                   test::with_context(mesh(1, 1, 1), 4),
                   false,
                   {{ContextExchange::kHeadsAndRing}, 2}});
  }
  return all;
}

TEST(Packing, LossIsThatOfPaddedSamplesOnOneRankForEveryLayout) {
  const auto alone = make_single_world(device());
  const double wanted = loss_of(*alone, {"alone", mesh(1, 1, 1)}, RowForm::kPadded);
  for (const RowLayout& layout : row_layouts()) {
    for (const RowForm form : {RowForm::kPadded, RowForm::kPacked, RowForm::kVariable})
      EXPECT_NEAR(loss_of(world(), layout, form), wanted, 1e-6 * wanted)
          << layout.name << ", form " << static_cast<int>(form);
  }
}

TEST(Packing, LossOfModelsWithStatesIsThatOfPaddedSamplesOnOneRank) {
  for (const ModelConfig& model : {with_states(), with_state_spaces(), with_convolutions()}) {
    const auto alone = make_single_world(device());
    const double wanted = loss_of(*alone, {"alone", mesh(1, 1, 1)}, RowForm::kPadded, model);
    for (const RowLayout& layout : row_layouts()) {
      for (const RowForm form : {RowForm::kPadded, RowForm::kPacked, RowForm::kVariable}) {
        EXPECT_NEAR(loss_of(world(), layout, form, model), wanted, 1e-6 * wanted)
            << layout.name << ", form " << static_cast<int>(form);
      }
    }
  }
}

// Where a row is drawn depends on its place, so each form of rows has another noise.
TEST(Packing, NoiseOnEmbeddingsIsThatOfOneRankForEveryLayout) {
  const auto alone = make_single_world(device());
  for (const RowForm form : {RowForm::kPadded, RowForm::kPacked, RowForm::kVariable}) {
    const double plain = loss_of(*alone, {"alone", mesh(1, 1, 1)}, form);
    const double wanted =
        loss_of(*alone, {.name = "alone", .sizes = mesh(1, 1, 1), .noise = 2}, form);
    EXPECT_GT(std::abs(plain - wanted), 1e-4 * wanted);
    for (RowLayout layout : row_layouts()) {
      layout.noise = 2;
      EXPECT_NEAR(loss_of(world(), layout, form), wanted, 1e-6 * wanted)
          << layout.name << ", form " << static_cast<int>(form);
    }
  }
}

}  // namespace
}  // namespace piton::ranks::packing_test
