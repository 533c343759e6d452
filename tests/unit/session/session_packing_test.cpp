// How samples are laid out in rows changes neither the loss nor the gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/conversations.h"
#include "support/errors.h"
#include "support/run_session.h"

namespace piton {
namespace {

using test::batch_of_conversations;
using test::RowForm;

struct LossAndGradients {
  StepReport report;
  std::map<std::string, std::vector<double>> gradients;
};

LossAndGradients computed(const ModelConfig& model, const std::vector<MicroBatch>& batches) {
  HostDevice device;
  const auto world = make_single_world(device);
  test::TrainingRun run(*world, {.name = "rows"}, model);
  LossAndGradients result{.report = run.session().gradients(batches, 0), .gradients = {}};
  for (Parameter* parameter : run.session().parameters()) {
    result.gradients[parameter->name] = test::values(parameter->gradient);
  }
  return result;
}

class Packing : public testing::TestWithParam<PositionKind> {};

TEST_P(Packing, ChangesNeitherTheLossNorTheGradients) {
  ModelConfig model = preset(GetParam() == PositionKind::kLearned ? "gpt2-tiny" : "llama-tiny");
  model.positions = GetParam();
  model.hidden_dropout = model.attention_dropout = 0;  // masks depend on the row
  const LossAndGradients padded =
      computed(model, batch_of_conversations(RowForm::kPadded, model.vocabulary, 1));
  EXPECT_GT(padded.report.loss_tokens, 0);
  const struct {
    const char* name;
    RowForm form;
    std::int64_t micro;
  } cases[] = {{"packed", RowForm::kPacked, 1},
               {"packed, all rows at once", RowForm::kPacked, 4},
               {"variable", RowForm::kVariable, 1},
               {"variable, four at once", RowForm::kVariable, 4},
               {"padded, four at once", RowForm::kPadded, 4}};
  for (const auto& one : cases) {
    const auto batches = batch_of_conversations(one.form, model.vocabulary, one.micro);
    EXPECT_LE(batches.size(), 16 / static_cast<std::size_t>(one.micro)) << one.name;
    const LossAndGradients rows = computed(model, batches);
    EXPECT_EQ(rows.report.loss_tokens, padded.report.loss_tokens) << one.name;
    EXPECT_NEAR(rows.report.loss, padded.report.loss, 1e-6 * padded.report.loss) << one.name;
    EXPECT_LE(test::largest_difference(rows.gradients, padded.gradients), 2e-6) << one.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, Packing,
                         testing::Values(PositionKind::kRotary, PositionKind::kLearned,
                                         PositionKind::kAlibi));

TEST(PackedRows, AreFewAndWouldGiveAnotherLossWithoutTheirSegments) {
  const ModelConfig model = preset("llama-tiny");
  auto packed = batch_of_conversations(RowForm::kPacked, model.vocabulary, 1);
  EXPECT_EQ(packed.size(), 4U) << "of 16 samples";
  const double loss = computed(model, packed).report.loss;
  for (MicroBatch& batch : packed) batch.segments.clear();
  EXPECT_GT(std::abs(computed(model, packed).report.loss - loss), 1e-4 * loss);
}

TEST(Session, RefusesABatchThatTeachesNothingAndNamesItsSamples) {
  const ModelConfig model = preset("llama-tiny");
  auto batches = batch_of_conversations(RowForm::kPadded, model.vocabulary, 4);
  for (MicroBatch& batch : batches) {
    std::fill(batch.labels.begin(), batch.labels.end(), kNoLabel);
    std::fill(batch.loss_mask.begin(), batch.loss_mask.end(), 0.0F);
  }
  HostDevice device;
  const auto world = make_single_world(device);
  test::TrainingRun run(*world, {.name = "rows"}, model);
  EXPECT_THAT(message_of(Fault::kData, [&] { run.session().gradients(batches, 32); }),
              testing::HasSubstr("samples 32 to 47: none of their tokens has a label"));
}

}  // namespace
}  // namespace piton
