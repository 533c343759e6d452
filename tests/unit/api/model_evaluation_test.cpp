// Log-likelihoods of a trained model are those of lm-evaluation-harness with Transformers, sample
// by sample: tests/golden/evaluation, made by tools/oracle/evaluation.py.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "api/model.h"
#include "base/json.h"
#include "evaluate/evaluation.h"
#include "generate/stop_words.h"
#include "support/host_machine.h"
#include "support/sampled.h"
#include "support/stories_folder.h"
#include "support/temp_folder.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(PITON_SOURCE_DIR) / "tests" / "golden" / "evaluation";
const fs::path kBench = fs::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "bench";

class EvaluatedStories final : public EvaluatedModel {
 public:
  explicit EvaluatedStories(Model& model) : model_(model) {}
  const Tokenizer& tokenizer() const override { return model_.require_tokenizer(); }
  bool adds_special_tokens() const override { return true; }
  std::int64_t longest_sequence() const override { return model_.config().max_positions; }
  std::vector<ContinuationScore> score(std::span<const ContinuationRequest> requests) override {
    return model_.score_continuations(requests);
  }
  std::int64_t computed_tokens() const override { return model_.counts().computed_tokens; }
  std::vector<std::string> generate(std::span<const std::vector<std::int32_t>> prompts,
                                    const TextEnd& end, const AnswerDraws&) override {
    std::vector<std::string> texts;
    for (const auto& prompt : prompts) {
      std::vector<std::int32_t> ids;
      const SamplingOptions sampling{.max_new_tokens = end.max_new_tokens, .greedy = true};
      for (const auto& token : model_.generate(prompt, sampling, [](const auto&) { return true; }))
        ids.push_back(token.id);
      StopWords stop(end.stop);
      std::string text = stop.push(tokenizer().decode(ids, {.skip_special_tokens = true}));
      texts.push_back(text + stop.finish());
    }
    return texts;
  }

 private:
  Model& model_;
};

void compare(const TaskEvaluation& evaluation, const std::string& subject,
             const nlohmann::json& wanted) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < evaluation.scores.size(); ++i) {
    if (evaluation.data.samples[i].subject != subject) continue;
    const auto& golden = wanted.at(next++);
    SCOPED_TRACE(next);
    const SampleResponse& response = evaluation.responses[i];
    if (golden.contains("text")) {
      EXPECT_EQ(response.text, golden["text"].get<std::string>());
    }
    if (golden.contains("log_likelihoods")) {
      const auto values = golden["log_likelihoods"].get<std::vector<double>>();
      ASSERT_EQ(response.log_likelihoods.size(), values.size());
      for (std::size_t k = 0; k < values.size(); ++k)
        EXPECT_NEAR(response.log_likelihoods[k], values[k], 1e-3);
    }
    if (golden.contains("greedy")) {
      EXPECT_EQ(response.greedy, golden["greedy"].get<std::vector<bool>>());
    }
    for (const SampleMetric& metric : evaluation.scores[i].metrics) {
      EXPECT_NEAR(metric.value, golden["metrics"].at(metric.metric + "," + metric.filter), 1e-3)
          << metric.metric;
    }
  }
  EXPECT_EQ(next, wanted.size());
}

// Returns the number of tasks, of which every third is compared by day, from task `first` on.
std::size_t compare_all(EvaluatedModel& model, const std::string& file, const fs::path& root,
                        std::size_t first) {
  std::istringstream lines(read_text_file(kGolden / file));
  std::size_t tasks = 0;
  for (std::string line; std::getline(lines, line); ++tasks) {
    const auto stride = static_cast<std::size_t>(test::one_of(3));
    if (tasks % stride != first % stride) continue;
    const auto golden = read_json<nlohmann::json>(line);
    SCOPED_TRACE(golden["task"].get<std::string>() + " " + golden["subject"].get<std::string>());
    TaskDataOptions options{.paths = {root.string()},
                            .num_shots = golden["num_shots"].get<std::int64_t>()};
    if (golden["limit"].is_number()) options.max_samples = golden["limit"].get<std::int64_t>();
    SilentProgress progress;
    const EvaluationRules rules{.requests = {.max_new_tokens = 32}, .batch_size = 3};
    compare(
        evaluate_task(model, load_task(find_task(golden["task"], {}), options), rules, progress),
        golden["subject"], golden["samples"]);
  }
  return tasks;
}

TEST(ModelEvaluation, GivesTheLogLikelihoodsOfLmEvaluationHarness) {
  if (!fs::exists(test::stories_path())) GTEST_SKIP() << "no model at " << test::stories_path();
  const TempFolder folder;
  test::StoriesFile(test::stories_path() / "stories260K.bin").write_folder(folder.path());
  write_text_file(folder / "tokenizer.json", read_text_file(kGolden / "stories_tokenizer.json"));
  write_text_file(folder / "tokenizer_config.json",
                  "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"unk_token\": \"<unk>\"}");
  test::HostMachine machine;
  const auto model = Model::load(machine.machine, folder.path(), {});
  EvaluatedStories evaluated(*model);
  EXPECT_EQ(compare_all(evaluated, "small.jsonl", kGolden / "data", 0), 18U);
  // Prompts of published data are longer than the model reads: they are cut.
  if (fs::exists(kBench)) {
    EXPECT_EQ(compare_all(evaluated, "published.jsonl", kBench, 1), 18U);
  }
}

}  // namespace
}  // namespace piton
