// ranks: 2 4
// The loss of a global batch of samples of different lengths is the same packed and padded, on any
// ranks.
#include <gtest/gtest.h>

#include "support/conversations.h"
#include "support/ranks_main.h"
#include "support/run_session.h"

namespace piton::ranks {

MpiOptions options() { return {.timeout_seconds = 60}; }

namespace {

using test::mesh;
using test::RowForm;

double loss_of(World& in, const MeshSizes& sizes, RowForm form, bool sequence_parallel = false,
               ContextExchange exchange = {}) {
  const ModelConfig model = preset("llama-tiny");
  test::TrainingRun run(
      in,
      {.name = "rows", .mesh = sizes, .sequence_parallel = sequence_parallel, .exchange = exchange},
      model);
  Mesh& ranks = run.session().mesh();
  const auto batches = test::batch_of_conversations(
      form, model.vocabulary, 1, ranks.coordinate(Axis::kData), ranks.size(Axis::kData));
  return run.session().gradients(batches, 0).loss;
}

TEST(Packing, LossIsThatOfPaddedSamplesOnOneRankForEveryLayout) {
  const auto alone = make_single_world(device());
  const double wanted = loss_of(*alone, mesh(1, 1, 1), RowForm::kPadded);
  const bool four = world().size() == 4;
  const struct {
    const char* name;
    MeshSizes sizes;
    bool sequence_parallel;
    ContextExchange exchange = ContextExchange::kRing;
  } layouts[] = {{"tensor", mesh(2, four ? 2 : 1, 1), false},
                 {"tensor, sequence parallel", mesh(2, four ? 2 : 1, 1), true},
                 {"context", test::with_context(mesh(1, four ? 2 : 1, 1), 2), false},
                 {"context, all-to-all", test::with_context(mesh(1, four ? 2 : 1, 1), 2), false,
                  ContextExchange::kHeads},
                 {"data", mesh(1, four ? 4 : 2, 1), false},
                 {"pipeline", mesh(1, four ? 2 : 1, 2), false}};
  for (const auto& layout : layouts) {
    for (const RowForm form : {RowForm::kPadded, RowForm::kPacked, RowForm::kVariable}) {
      EXPECT_NEAR(loss_of(world(), layout.sizes, form, layout.sequence_parallel, layout.exchange),
                  wanted, 1e-6 * wanted)
          << layout.name << ", form " << static_cast<int>(form);
    }
  }
}

}  // namespace
}  // namespace piton::ranks
