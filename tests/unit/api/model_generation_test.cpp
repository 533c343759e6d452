// Beams and greedy texts against those of Transformers (tests/golden/beams.jsonl and
// generation.jsonl, tools/oracle/beams.py and generation.py), and several prompts side by side
// against each alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "api/model.h"
#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/load_values.h"
#include "generate/generator.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using test::HostMachine;
using ::testing::HasSubstr;

std::vector<std::int32_t> ids_of(const Beam& beam) {
  std::vector<std::int32_t> ids;
  for (const LikelyToken& token : beam.tokens) ids.push_back(token.id);
  return ids;
}

std::vector<Beam> beams_of(Model& model, const nlohmann::json& row) {
  const std::vector<std::int32_t> prompt = row["prompt"];
  const std::string early = row["early_stopping"];
  return model.beams(prompt, row["tokens"],
                     {.num_beams = row["beams"],
                      .length_penalty = row["length_penalty"],
                      .early_stopping = early == "true"    ? EarlyStopping::kYes
                                        : early == "never" ? EarlyStopping::kNever
                                                           : EarlyStopping::kNo},
                     [](std::span<const LikelyToken>) { return false; });
}

// A golden model whose texts end at these ids: null, one, or a list.
std::unique_ptr<Model> model_with_ends(const HostMachine& machine, const std::string& name,
                                       const nlohmann::json& ends) {
  test::HfFolder folder(name);
  folder.edit_config([&](nlohmann::ordered_json& config) { config["eos_token_id"] = ends; });
  return Model::load(machine.machine, folder.path(), {});
}

// Scores there are sums of twelve log-probabilities of size 5 in fp32: 12 x 60 x 2^-24 is 4e-5.
TEST(Beams, AreThoseOfTransformers) {
  std::istringstream golden(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/beams.jsonl"));
  std::string line;
  std::getline(golden, line);  // the provenance
  HostMachine machine;
  int rows = 0;
  int ended_early = 0;
  while (std::getline(golden, line)) {
    const auto row = read_json<nlohmann::json>(line);
    const auto model = model_with_ends(machine, row["model"], row["end"]);
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
  EXPECT_GE(rows, 108);
  EXPECT_GE(ended_early, 50);
}

TEST(Beams, OfOneAreTheGreedyText) {
  HostMachine machine;
  for (const char* name : {"gpt2", "phi3-longrope"}) {  // the latter reads its text again at 13
    const auto model = Model::load(machine.machine, test::golden_folder(name), {});
    const std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5};
    const auto greedy = model->generate(prompt, {.max_new_tokens = 9, .greedy = true},
                                        [](const GeneratedToken&) { return true; });
    const auto beams =
        model->beams(prompt, 9, {}, [](std::span<const LikelyToken>) { return false; });
    ASSERT_EQ(beams.size(), 1U);
    ASSERT_EQ(beams[0].tokens.size(), greedy.size());
    double sum = 0;
    for (std::size_t i = 0; i < greedy.size(); ++i) {
      EXPECT_EQ(beams[0].tokens[i].id, greedy[i].id) << name << ", token " << i;
      EXPECT_NEAR(beams[0].tokens[i].log_probability, greedy[i].log_probability, 1e-5) << name;
      sum += greedy[i].log_probability;
    }
    EXPECT_NEAR(beams[0].score, sum / 9, 1e-5) << name;
  }
}

// A model whose configuration gets another rotary scaling.
class Scaled : public HostMachine {
 public:
  Scaled(const std::string& name, std::int64_t original_positions)
      : source_(test::golden_folder(name)),
        session_(machine, mesh_,
                 {.model = model(original_positions), .use = SessionUse::kInference}) {
    load_weights(
        source_, {.parameters = session_.parameters(), .sharded = &session_.sharded()},
        {.mesh = mesh_, .device = device, .arena = arena, .stream = *stream, .threads = &threads});
    session_.publish_values();
  }
  std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt,
                                     const SamplingOptions& sampling) {
    Inference inference(session_.context(false), session_.pipeline(), mesh_,
                        session_.settings().model);
    const auto engine = make_batched_engine(inference, {.prompt_tokens = 4});
    std::vector<std::int32_t> ids;
    generate_batch(*engine, {.ids = std::span(&prompt, 1)}, sampling,
                   [&](std::size_t, const GeneratedToken& token) {
                     ids.push_back(token.id);
                     return true;
                   });
    return ids;
  }

 private:
  ModelConfig model(std::int64_t original_positions) const {
    ModelConfig model = source_.model();
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kDynamic,
                            .factor = 4,
                            .original_positions = original_positions};
    return model;
  }
  HfSource source_;
  Mesh mesh_{*world, MeshSizes{}};
  Session session_;
};

// Of all families, with penalties, and beyond the original positions of a dynamic rotary scaling.
TEST(Greedy, TextsAreThoseOfTransformers) {
  std::istringstream golden(
      read_text_file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/generation.jsonl"));
  std::string line;
  std::getline(golden, line);  // the provenance
  HostMachine machine;
  std::string loaded;
  std::unique_ptr<Model> model;
  std::size_t tokens = 0;
  int scaled = 0;
  while (std::getline(golden, line)) {
    SCOPED_TRACE(line);
    const auto row = read_json<nlohmann::json>(line);
    const std::vector<std::int32_t> prompt = row["prompt"];
    const std::vector<std::int32_t> wanted = row["ids"];
    if (wanted.empty()) continue;
    const SamplingOptions sampling{.max_new_tokens = std::ssize(wanted),
                                   .greedy = true,
                                   .repetition_penalty = row["repetition_penalty"],
                                   .presence_penalty = row["presence_penalty"],
                                   .frequency_penalty = row["frequency_penalty"]};
    tokens += wanted.size();
    if (!row["dynamic"].is_null()) {
      EXPECT_EQ(Scaled(row["model"], row["dynamic"]).generate(prompt, sampling), wanted);
      ++scaled;
      continue;
    }
    if (row["model"] != loaded) {
      loaded = row["model"];
      model = model_with_ends(machine, loaded, nullptr);
    }
    std::vector<std::int32_t> ids;
    model->generate(prompt, sampling, [&](const GeneratedToken& token) {
      ids.push_back(token.id);
      return true;
    });
    EXPECT_EQ(ids, wanted);
  }
  EXPECT_EQ(scaled, 6);
  EXPECT_GE(tokens, 1000U);
}

// A text does not depend on how many tokens may follow it.
TEST(Generation, OfFewerTokensIsTheBeginningOfMore) {
  HostMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("phi3-longrope"), {});
  const std::vector<std::int32_t> prompt = {3, 1, 4};
  const auto written = [&](std::int64_t most) {
    return model->generate(prompt, {.max_new_tokens = most, .greedy = true},
                           [](const GeneratedToken&) { return true; });
  };
  const auto all = written(20);
  for (const std::int64_t most : {5, 7, 8, 12}) {
    const auto some = written(most);
    for (std::size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i].id, all[i].id);
      EXPECT_EQ(some[i].log_probability, all[i].log_probability) << most << ", token " << i;
    }
  }
}

// Prompts of different lengths, of which each ends by itself; logits of several rows are those of
// one within rounding, so that tokens are the same.
TEST(Batches, GiveEachPromptWhatItGetsAlone) {
  HostMachine machine;
  for (const char* name : {"gpt2", "llama3", "bloom", "mistral", "phi3-longrope"}) {
    const auto model = Model::load(machine.machine, test::golden_folder(name), {});
    const std::vector<std::vector<std::int32_t>> prompts = {
        {3, 1, 4, 1, 5}, {9}, {2, 6, 5, 3, 5, 8, 9, 7, 9}, {3, 2}};
    for (const bool greedy : {true, false}) {
      const SamplingOptions options{.max_new_tokens = 14, .greedy = greedy, .log_probabilities = 2};
      const auto continues = [](std::size_t prompt, std::size_t written) {
        return prompt != 1 || written < 4;  // the second is ended early
      };
      std::vector<std::size_t> seen(prompts.size(), 0);
      const auto all = model->generate_batch({.ids = prompts}, options,
                                             [&](std::size_t prompt, const GeneratedToken&) {
                                               return continues(prompt, ++seen[prompt]);
                                             });
      ASSERT_EQ(all.size(), prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        std::size_t written = 0;
        const auto alone = model->generate(
            prompts[i], options, [&](const GeneratedToken&) { return continues(i, ++written); });
        ASSERT_EQ(all[i].size(), alone.size()) << name << ", prompt " << i;
        for (std::size_t k = 0; k < alone.size(); ++k) {
          EXPECT_EQ(all[i][k].id, alone[k].id) << name << ", prompt " << i << ", token " << k;
          EXPECT_NEAR(all[i][k].log_probability, alone[k].log_probability, 1e-4);
          ASSERT_EQ(all[i][k].likeliest.size(), 2U);
          EXPECT_GE(all[i][k].likeliest[0].log_probability, all[i][k].likeliest[1].log_probability);
          if (greedy) {
            EXPECT_EQ(all[i][k].likeliest[0].id, all[i][k].id);
          }
        }
      }
    }
  }
}

// The longest sequence of the model ends each text where it is full.
TEST(Batches, EndEachTextWhereTheModelDoes) {
  HostMachine machine;
  const auto model = Model::load(machine.machine, test::golden_folder("gpt2"), {});
  const auto longest = static_cast<std::size_t>(model->config().max_positions);
  const std::vector<std::vector<std::int32_t>> prompts = {
      {5}, std::vector<std::int32_t>(longest - 2, 7), std::vector<std::int32_t>(longest - 1, 7)};
  const auto all = model->generate_batch({.ids = prompts}, {.max_new_tokens = 6, .greedy = true},
                                         [](std::size_t, const GeneratedToken&) { return true; });
  EXPECT_EQ(all[0].size(), 6U);
  EXPECT_EQ(all[1].size(), 2U);
  EXPECT_EQ(all[2].size(), 1U);
}

TEST(Beams, RefuseWhatCannotBe) {
  HostMachine machine;
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
