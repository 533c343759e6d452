// Which weights decay, by their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "support/run_session.h"

namespace piton {
namespace {

using test::TrainingRun;

std::set<std::string> decaying(const ModelConfig& model, DecayGroups groups) {
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun run(*world, {.optimizer = {.decay_groups = groups}}, model);
  std::set<std::string> names;
  for (const Parameter* parameter : run.session().parameters()) {
    for (const Piece& piece : parameter->pieces) {
      if (piece.decays) names.insert(piece.name);
    }
  }
  return names;
}

// The names of all pieces of the model that have `dims` dims and end in ".weight".
std::set<std::string> weights(const ModelConfig& model, int dims) {
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun run(*world, {}, model);
  std::set<std::string> names;
  for (const Parameter* parameter : run.session().parameters()) {
    for (const Piece& piece : parameter->pieces) {
      if (piece.global.ndim() == dims && piece.name.ends_with(".weight")) names.insert(piece.name);
    }
  }
  return names;
}

TEST(DecayGroups, AreMatricesAloneByMegatronsRule) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = preset(name);
    EXPECT_EQ(decaying(model, DecayGroups::kMatrices), weights(model, 2)) << name;
  }
}

TEST(DecayGroups, OfAscendSpeedHaveTheGainsOfRmsNormsToo) {
  ModelConfig llama = preset("llama-tiny");
  llama.vocabulary = 50;
  std::set<std::string> all = weights(llama, 2);
  const std::set<std::string> gains = weights(llama, 1);
  EXPECT_EQ(gains.size(), static_cast<std::size_t>(2 * llama.layers + 1));
  EXPECT_TRUE(gains.contains("layers.0.attention_norm.weight"));
  all.insert(gains.begin(), gains.end());
  EXPECT_EQ(decaying(llama, DecayGroups::kMatricesAndRmsNorms), all);
  // Its norms and biases are left out by name.
  const ModelConfig gpt = preset("gpt2-tiny");
  EXPECT_EQ(decaying(gpt, DecayGroups::kMatricesAndRmsNorms), weights(gpt, 2));
}

// Norms of heads are RMS norms in models with LayerNorms too.
TEST(DecayGroups, OfAscendSpeedHaveTheGainsOfHeads) {
  ModelConfig model = preset("gpt2-tiny");
  model.head_norms = true;
  std::set<std::string> wanted = weights(model, 2);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    for (const char* norm : {"query_norm", "key_norm"}) {
      wanted.insert(fmt::format("layers.{}.attention.{}.weight", layer, norm));
    }
  }
  EXPECT_EQ(decaying(model, DecayGroups::kMatricesAndRmsNorms), wanted);
}

}  // namespace
}  // namespace piton
