// A session for inference gives the results of a training session, and holds each weight once.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "generate/inference.h"
#include "model/families.h"
#include "session/session.h"
#include "support/host_machine.h"

namespace piton {
namespace {

constexpr std::int64_t kRows = 40;  // more than few: their weights are packed
constexpr std::int64_t kFewRows = 9;

ModelConfig model_of(const std::string& family, DType dtype) {
  ModelConfig model = family_facts(family);
  model.layers = 2;
  model.hidden = 64;
  model.heads = 4;
  model.head_size = 16;
  model.groups = family == "llama" ? 2 : 4;
  model.ffn_hidden = 192;
  model.vocabulary = 128;
  model.max_positions = 64;
  model.hidden_dropout = 0;
  model.attention_dropout = 0;
  model.dtype = dtype;
  return model;
}

struct Loaded : test::HostMachine {
  Loaded(const ModelConfig& model, SessionUse use)
      : mesh(*world, MeshSizes{}),
        session(machine, mesh,
                {.model = model, .layout = {.vocabulary_multiple = 16}, .use = use}) {
    session.initialize();
  }

  std::vector<float> logits(std::int64_t rows = kRows) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
    std::iota(ids.begin(), ids.end(), 3);
    Inference inference(session.context(false), session.pipeline(), mesh, session.settings().model);
    const Tensor logits = inference.logits(ids, 1);
    std::vector<float> host(static_cast<std::size_t>(logits.elements()));
    device.download(logits, host.data(), *stream);
    return host;
  }

  std::int64_t in_use(MemoryKind kind) const {
    return arena.counts().in_use_bytes[static_cast<std::size_t>(kind)];
  }

  Mesh mesh;
  Session session;
};

// LLaMA's head has a separate weight, GPT-2's is its table.
class InferenceSession : public ::testing::TestWithParam<const char*> {
 protected:
  ModelConfig model_ = model_of(GetParam(), DType::kBF16);
  Loaded trained_{model_, SessionUse::kGradients};
  Loaded inference_{model_, SessionUse::kInference};
};

TEST_P(InferenceSession, GivesTheBitsOfASessionWithGradients) {
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(inference_.logits(), trained_.logits());
}

// Before a longer input has had the weights packed, and after it.
TEST_P(InferenceSession, FewRowsHaveTheSameBitsFromEitherForm) {
  const std::vector<float> wanted = trained_.logits(kFewRows);
  EXPECT_EQ(inference_.logits(kFewRows), wanted);
  EXPECT_EQ(inference_.logits(), trained_.logits());
  EXPECT_EQ(inference_.logits(kFewRows), wanted);
}

TEST_P(InferenceSession, NewValuesTakeTheOnesPlaceThatWerePacked) {
  inference_.logits();
  inference_.session.initialize();
  EXPECT_EQ(inference_.logits(), trained_.logits());
}

TEST_P(InferenceSession, HoldsNoGradientsAndEachWeightOnce) {
  if (inference_.kernels->packed_bytes(WeightForm::kForward, 64, 64, DType::kBF16) != 64 * 64 * 2) {
    GTEST_SKIP() << "this processor packs bf16 weights wider";
  }
  const std::int64_t plain = inference_.in_use(MemoryKind::kParameters);
  inference_.logits();
  EXPECT_EQ(inference_.in_use(MemoryKind::kGradients), 0);
  EXPECT_EQ(inference_.in_use(MemoryKind::kOptimizer), 0);
  EXPECT_GT(trained_.in_use(MemoryKind::kGradients), 0);
  std::int64_t twice = 0;  // a table of rows that multiplies as well
  for (const Parameter* parameter : inference_.session.parameters()) {
    if (parameter->contributions > 1) twice += parameter->elements() * size_bytes(parameter->dtype);
  }
  EXPECT_EQ(twice > 0, model_.tied);
  EXPECT_EQ(inference_.in_use(MemoryKind::kParameters), plain + twice);
}

INSTANTIATE_TEST_SUITE_P(Models, InferenceSession, ::testing::Values("llama", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace piton
