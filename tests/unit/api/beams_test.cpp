// Beams against those of Transformers (tests/golden/beams.jsonl, tools/oracle/beams.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "api/model.h"
#include "base/files.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

struct BeamMachine {
  HostDevice device;
  SilentLog log;
  ThreadPool threads{2};
  std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads);
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Machine machine{*world, device, *kernels, arena, *stream, threads, log};
};

std::vector<std::int32_t> ids_of(const Beam& beam) {
  std::vector<std::int32_t> ids;
  for (const LikelyToken& token : beam.tokens) ids.push_back(token.id);
  return ids;
}

std::vector<Beam> beams_of(Model& model, const nlohmann::json& row) {
  const std::vector<std::int32_t> prompt = row["prompt"];
  return model.beams(prompt, row["tokens"],
                     {.num_beams = row["beams"], .length_penalty = row["length_penalty"]},
                     [&](std::span<const LikelyToken> tokens) {
                       return !row["end"].is_null() && tokens.back().id == row["end"];
                     });
}

// Scores there are sums of twelve log-probabilities of size 5 in fp32: 12 x 60 x 2^-24 is 4e-5.
TEST(Beams, AreThoseOfTransformers) {
  std::istringstream golden(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/beams.jsonl"));
  std::string line;
  std::getline(golden, line);  // the provenance
  BeamMachine machine;
  std::string loaded;
  std::unique_ptr<Model> model;
  int rows = 0;
  int ended_early = 0;
  while (std::getline(golden, line)) {
    const auto row = nlohmann::json::parse(line);
    if (row["model"] != loaded) {
      loaded = row["model"];
      model = Model::load(machine.machine, test::golden_folder(loaded), {});
    }
    const std::vector<Beam> found = beams_of(*model, row);
    ASSERT_EQ(found.size(), row["found"].size()) << line;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto& wanted = row["found"][i];
      EXPECT_EQ(ids_of(found[i]), wanted["ids"].get<std::vector<std::int32_t>>()) << line;
      const double score = wanted["score"];
      EXPECT_NEAR(found[i].score, score, 1e-4 * std::abs(score)) << line;
      if (found[i].tokens.size() < row["tokens"]) ++ended_early;
    }
    ++rows;
  }
  EXPECT_GE(rows, 30);
  EXPECT_GE(ended_early, 30);
}

TEST(Beams, OfOneAreTheGreedyText) {
  BeamMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("gpt2"), {});
  const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5};
  const auto greedy = model->generate(prompt, {.max_new_tokens = 9, .greedy = true},
                                      [](const GeneratedToken&) { return true; });
  const auto beams =
      model->beams(prompt, 9, {}, [](std::span<const LikelyToken>) { return false; });
  ASSERT_EQ(beams.size(), 1U);
  ASSERT_EQ(beams[0].tokens.size(), greedy.size());
  double sum = 0;
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    EXPECT_EQ(beams[0].tokens[i].id, greedy[i].id);
    EXPECT_NEAR(beams[0].tokens[i].log_probability, greedy[i].log_probability, 1e-5);
    sum += greedy[i].log_probability;
  }
  EXPECT_NEAR(beams[0].score, sum / 9, 1e-5);
}

TEST(Beams, RefuseWhatCannotBe) {
  BeamMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("gpt2"), {});
  const auto never = [](std::span<const LikelyToken>) { return false; };
  const std::vector<std::int32_t> prompt = {3};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { model->beams(prompt, 4, {.num_beams = 0}, never); }),
              HasSubstr("--num-beams: got 0, wanted 1 to"));
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] { model->beams(prompt, 4, {.num_beams = 2, .length_penalty = NAN}, never); }),
      HasSubstr("--length-penalty: got nan"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { model->beams({}, 4, {.num_beams = 2}, never); }),
              HasSubstr("the prompt is empty"));
}

}  // namespace
}  // namespace piton
