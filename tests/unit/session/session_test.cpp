// A session is made of chunks from a factory; the chunks of a stage share its parameters.
#include <gtest/gtest.h>

#include "model/decoder.h"
#include "support/run_session.h"

namespace piton {
namespace {

// All chunks on one stage, one micro-batch after another.
Schedule all_on_one_stage(int chunks, int micro_batches) {
  Schedule schedule{.name = "chunks on one stage",
                    .micro_batches = micro_batches,
                    .stage_of_chunk = std::vector<int>(static_cast<std::size_t>(chunks), 0),
                    .steps = {{}}};
  for (int m = 0; m < micro_batches; ++m) {
    for (int c = 0; c < chunks; ++c) schedule.steps[0].push_back({Pass::kForward, m, c});
    for (int c = chunks; c-- > 0;) schedule.steps[0].push_back({Pass::kBackward, m, c});
  }
  return schedule;
}

TEST(Session, TrainsAModelInChunksAsAWhole) {
  const ModelConfig model = preset("gpt2-tiny");  // its head is its token table
  HostDevice device;
  const auto world = make_single_world(device);
  test::TrainingRun whole(*world, {.name = "whole"}, model);
  test::TrainingRun chunks(*world, {.name = "chunks", .own_schedule = all_on_one_stage(4, 4)},
                           model);
  EXPECT_EQ(chunks.losses(4), whole.losses(4));
  EXPECT_EQ(chunks.pieces(), whole.pieces());
  EXPECT_EQ(chunks.session().parameters().size(), whole.session().parameters().size());
}

// Losses are masked unevenly: a mean of the micro-batches' means would be another number.
TEST(Session, GradientsAreTheSameForEveryFactoringOfTheGlobalBatch) {
  HostDevice device;
  const auto world = make_single_world(device);
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    ModelConfig model = preset(name);
    model.hidden_dropout = model.attention_dropout = 0.1;  // masks depend on the sample alone
    const auto of = [&](std::int64_t micro) {
      return test::TrainingRun(*world, {.name = "one", .micro = micro}, model).gradients();
    };
    const auto whole = of(test::kSamples);
    for (const std::int64_t micro : {1, 2, 4})
      EXPECT_LE(test::largest_difference(of(micro), whole), 1e-6) << name << ", micro " << micro;
  }
}

TEST(Session, LaunchesItsStepsWhereTheDeviceRecordsNothing) {
  HostDevice device;
  const auto world = make_single_world(device);
  test::TrainingRun wanted(*world, {.name = "launched"}, preset("gpt2-tiny"));
  test::TrainingRun got(*world, {.name = "recorded"}, preset("gpt2-tiny"));
  got.session().record_steps(true);
  EXPECT_EQ(got.session().obstacle_to_recording(), "its device records nothing");
  EXPECT_EQ(got.losses(3), wanted.losses(3));
  EXPECT_EQ(got.pieces(), wanted.pieces());
  EXPECT_EQ(got.arena().counts().slots, wanted.arena().counts().slots);
}

// A chunk that is no decoder: it doubles what the decoder gives, and adds its own sum.
class Doubled final : public Chunk {
 public:
  explicit Doubled(std::unique_ptr<Chunk> inner) : inner_(std::move(inner)) {}
  std::vector<BoundaryTensor> boundary(int chunk, const ModelInput& input) const override {
    return inner_->boundary(chunk, input);
  }
  ChunkOutput forward(Context& context, const ModelInput& input,
                      const std::vector<Value>& inputs) override {
    ChunkOutput output = inner_->forward(context, input, inputs);
    const Tensor sum = output.sums.at(0).value.tensor;
    Tensor twice = context.activation(DType::kF64, {1});
    context.kernels.run(Add{.y = twice, .a = sum, .b = sum}, context.stream);
    output.sums.push_back({"twice the loss", {twice}});
    return output;
  }
  void add_layers(KvCache& cache) const override { inner_->add_layers(cache); }

 private:
  std::unique_ptr<Chunk> inner_;
};

TEST(Session, TakesChunksFromAFactoryAndAddsUpTheirSumsByName) {
  const ModelConfig model = preset("llama-tiny");
  HostDevice device;
  const auto world = make_single_world(device);
  test::TrainingRun run(*world, {.name = "one"}, model);
  const ModelLayout layout{.mesh = &run.session().mesh(), .options = {.vocabulary_multiple = 16}};
  SessionSettings settings = run.session().settings();
  settings.chunks = [inner = decoder_factory(model, layout)](const ChunkPlace& place,
                                                             const ChunkSetup& setup) {
    return std::make_unique<Doubled>(inner(place, setup));
  };
  Session session(run.machine(), run.session().mesh(), settings);
  session.initialize();
  std::vector<ModelInput> inputs;
  for (const MicroBatch& batch : test::batches(0, 0, 1, model.vocabulary))
    inputs.push_back(session.upload(batch, {}));
  const PipelineResult result = session.pipeline().forward(session.context(false), inputs);
  ASSERT_EQ(result.sums.size(), 2);
  const double loss = *result.sums.find(kLossSum)->second.data<double>();
  EXPECT_GT(loss, 0);
  EXPECT_DOUBLE_EQ(*result.sums.find("twice the loss")->second.data<double>(), 2 * loss);
  EXPECT_EQ(session.evaluate(test::batches(0, 0, 1, model.vocabulary)).loss_sum, loss);
}

}  // namespace
}  // namespace piton
