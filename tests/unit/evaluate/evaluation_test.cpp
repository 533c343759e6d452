#include "evaluate/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/hash.h"
#include "evaluate/evaluation_results.h"
#include "support/scripted_model.h"
#include "support/temp_folder.h"
#include "tasks/needlebench.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using test::ScriptedModel;

const std::string kData = std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/data";

TaskEvaluation evaluate(EvaluatedModel& model, const TaskData& data,
                        const EvaluationRules& rules = {}) {
  SilentProgress progress;
  return evaluate_task(model, data, rules, progress);
}

double value_of(const TaskEvaluation& evaluation) {
  double sum = 0;
  for (const SampleScore& score : evaluation.scores) sum += score.metrics.front().value;
  return sum / static_cast<double>(evaluation.scores.size());
}

TaskData mmlu() { return load_task(find_task("mmlu", {}), {.paths = {kData}}); }

// Knows the right answers by the texts of the samples.
ScriptedModel truthful_model(const TaskData& data) {
  ScriptedModel model;
  model.likelihood = [&data](const std::string& context, const std::string& continuation) {
    for (const TaskSample& sample : data.samples) {
      for (const std::int64_t gold : sample.gold) {
        const auto right = static_cast<std::size_t>(gold);
        if (sample.context(right) + sample.continuations[right] == context + continuation)
          return 0.0;
      }
    }
    return -5.0 * static_cast<double>(continuation.size());
  };
  model.answer = [&data](const std::string& prompt) {
    for (const TaskSample& sample : data.samples) {
      if (sample.contexts[0] == prompt) return sample.answer;
    }
    return std::string();
  };
  return model;
}

TEST(Evaluation, ReadsTheAnswerAfterReasoning) {
  TaskData data = load_task(find_task("gsm8k", {}), {.paths = {kData}});
  const ScriptedModel truthful = truthful_model(data);
  ScriptedModel model;
  model.answer = [&](const std::string& prompt) {
    return "#### 1\n\nQuestion: is it?</think> " + truthful.answer(prompt) + "\n\nQuestion: #### 1";
  };
  EXPECT_EQ(value_of(evaluate(model, data)), 0);
  data.task.reasoning_end = "</think>";
  EXPECT_EQ(value_of(evaluate(model, data)), 1);
}

TEST(Evaluation, OfAModelThatKnowsAllIsOne) {
  for (const char* name : {"mmlu", "boolq", "hellaswag", "piqa", "winogrande", "arc_easy", "ceval",
                           "cmmlu", "agieval", "openbookqa", "gsm8k"}) {
    SCOPED_TRACE(name);
    const TaskData data = load_task(find_task(name, {}), {.paths = {kData}});
    ScriptedModel model = truthful_model(data);
    EXPECT_EQ(value_of(evaluate(model, data)), 1.0);
  }
}

TEST(Evaluation, OfAModelThatFindsAllNeedlesIsOne) {
  const Task task = find_task("needlebench", {.protocol = Protocol::kMindSpeed});
  TaskData data =
      load_task(task, {.paths = {kData + "/../mindspeed"},
                       .needles = {.lengths = {300, 900}, .depths = {0, 50, 100}, .buffer = 100}});
  ScriptedModel model;
  make_needle_samples(data, model.tokenizer(), model.longest_sequence());
  model.answer = [&data](const std::string& prompt) {
    for (const TaskSample& sample : data.samples) {
      if (sample.contexts[0] == prompt) return "It is " + sample.keyword;
    }
    return std::string();
  };
  const TaskEvaluation found = evaluate(model, data, {.requests = {.max_new_tokens = 64}});
  EXPECT_EQ(found.scores.size(), 120U);
  EXPECT_EQ(value_of(found), 1.0);
  EXPECT_EQ(found.cut_prompts, 0);
  // Half a needle is like it, and has no keyword.
  model.answer = [&data](const std::string&) { return data.samples[0].answer.substr(0, 10); };
  const TaskEvaluation half = evaluate(model, data, {.requests = {.max_new_tokens = 64}});
  EXPECT_GT(value_of(half), 0.0);
  EXPECT_LT(value_of(half), 0.2);
  EXPECT_FALSE(half.scores[0].correct);
  EXPECT_EQ(half.scores[0].metrics[1].metric, "acc");
  EXPECT_EQ(half.scores[0].metrics[1].value, 0.0);
}

TEST(Evaluation, OfAModelThatAlwaysSaysAIsTheShareOfA) {
  const TaskData data = mmlu();
  ScriptedModel model;
  model.likelihood = [](const std::string&, const std::string& continuation) {
    return continuation == " A" ? -1.0 : -2.0;
  };
  EXPECT_EQ(value_of(evaluate(model, data)), 1.0 / 5);  // A B C, B C
}

// Tasks of MindSpeed-LLM whose answer is generated, of a model that writes `answer` of the sample.
double generated_score(const TaskData& data,
                       const std::function<std::string(const TaskSample&)>& answer) {
  ScriptedModel model;
  model.answer = [&](const std::string& prompt) {
    for (const TaskSample& sample : data.samples) {
      if (sample.contexts[0] == prompt) return answer(sample);
    }
    return std::string();
  };
  return value_of(evaluate(model, data, {.requests = {.max_new_tokens = 16}}));
}

TEST(Evaluation, ByMindSpeedOfAModelThatKnowsAllIsOneAndThatAlwaysSaysAIsTheShareOfA) {
  struct Case {
    const char* task;
    std::string path = kData;
    std::optional<std::int64_t> shots = 0;
    TaskChoice choice = {.protocol = Protocol::kMindSpeed};
    double share_of_a = 0;
  };
  const TaskChoice long_prompt{.protocol = Protocol::kMindSpeed, .alternative_prompt = true};
  for (const Case& one :
       {Case{.task = "mmlu", .share_of_a = 0.2},
        Case{.task = "mmlu", .choice = long_prompt, .share_of_a = 0.2}, Case{.task = "ceval"},
        Case{.task = "cmmlu"}, Case{.task = "bbh"}, Case{.task = "gsm8k"},
        Case{
            .task = "agieval", .path = kData + "/../mindspeed", .shots = {}, .share_of_a = 0.25}}) {
    SCOPED_TRACE(one.task);
    const TaskData data =
        load_task(find_task(one.task, one.choice), {.paths = {one.path}, .num_shots = one.shots});
    const bool says_so = data.task.name == "gsm8k";
    EXPECT_EQ(generated_score(data,
                              [&](const TaskSample& sample) {
                                return (says_so ? "So. The answer is " : " ") + sample.answer +
                                       "\n";
                              }),
              1.0);
    std::int64_t right = 0;
    for (const TaskSample& sample : data.samples) right += sample.answer == "A" ? 1 : 0;
    const double share = static_cast<double>(right) / static_cast<double>(data.samples.size());
    EXPECT_EQ(generated_score(data, [](const TaskSample&) { return "A"; }), share);
    if (one.share_of_a > 0) {
      EXPECT_EQ(share, one.share_of_a);
    }
  }
}

// Four choices: 4.4 standard errors around 1/4 of 2000 questions, which one of 100,000 draws
// leaves.
TEST(Evaluation, OfAModelThatGuessesIsAboutTheShareOfOneChoice) {
  const TempFolder folder;
  std::string rows;
  for (int i = 0; i < 2000; ++i)
    rows += fmt::format("question {},one,two,three,four,{}\n", i, "ABCD"[i % 4]);
  write_text_file(folder / "mmlu/test/anatomy_test.csv", rows);
  const TaskData data =
      load_task(find_task("mmlu", {}), {.paths = {folder.path().string()}, .num_shots = 0});
  ScriptedModel model;
  model.likelihood = [](const std::string& context, const std::string& continuation) {
    return -static_cast<double>(hash64(context + continuation) >> 11) * 0x1p-53;
  };
  EXPECT_NEAR(value_of(evaluate(model, data)), 0.25, 0.0426);
}

TEST(Evaluation, GivesTheSameForEveryBatchSize) {
  const TaskData data = load_task(find_task("hellaswag", {}), {.paths = {kData}});
  ScriptedModel model;
  const TaskEvaluation one = evaluate(model, data, {.round_tokens = 1});
  const TaskEvaluation many = evaluate(model, data, {.round_tokens = 1000});
  EXPECT_EQ(one.responses, many.responses);
  EXPECT_EQ(model.scored, 2 * (12 + 1)) << "and a text that tells models apart";
}

TEST(Evaluation, ContinuesWhereItWasKilled) {
  const TempFolder folder;
  const TaskData data = mmlu();
  const EvaluationRules rules{.round_tokens = 1, .journal = folder / "mmlu.journal"};
  ScriptedModel model = truthful_model(data);
  model.fails_after = 8;
  EXPECT_THROW(evaluate(model, data, rules), std::runtime_error);
  model.fails_after = 1000;
  model.scored = 0;
  const TaskEvaluation rest = evaluate(model, data, rules);
  EXPECT_EQ(rest.restored, 8);
  EXPECT_EQ(model.scored, 12 + 1);
  EXPECT_EQ(rest.responses, evaluate(model, data).responses);
  EXPECT_EQ(value_of(rest), 1.0);
  forget_journal(rules);
  EXPECT_FALSE(std::filesystem::exists(folder / "mmlu.journal"));
}

TEST(Evaluation, DrawsSeveralAnswersAndContinuesWithTheSame) {
  const TempFolder folder;
  const TaskData data =
      load_task(find_task("humaneval", {}),
                {.paths = {std::string(PITON_SOURCE_DIR) +
                           "/tests/golden/evaluation/data/humaneval/test.jsonl"}});
  EvaluationRules rules{.sampling = {.answers = 3, .temperature = 0.5},
                        .batch_size = 2,
                        .journal = folder / "humaneval.journal"};
  rules.requests.answers = 3;
  ScriptedModel model;
  model.drawn = [](const std::string& prompt, std::uint64_t draw) {
    return std::to_string(prompt.size()) + " " + std::to_string(draw);
  };
  model.fails_after = 4;
  EXPECT_THROW(evaluate(model, data, rules), std::runtime_error);
  model.fails_after = 1000;
  const TaskEvaluation rest = evaluate(model, data, rules);
  EXPECT_EQ(rest.restored, 4);
  ASSERT_EQ(rest.responses.size(), 3U);
  for (std::size_t i = 0; i < rest.responses.size(); ++i) {
    std::vector<std::string> wanted;
    for (std::size_t k = 0; k < 3; ++k)
      wanted.push_back(model.drawn(data.samples[i].contexts[0], AnswerSampling::draw(i, k)));
    EXPECT_EQ(rest.responses[i].texts, wanted);
  }
  const auto config = results_json({rest}, {})["configs"]["humaneval"];
  EXPECT_EQ(config["num_samples"], 3);
  EXPECT_EQ(config["temperature"], 0.5);
  // Answers of another temperature are no answers to this.
  rules.sampling.temperature = 0.7;
  EXPECT_THAT([&] { evaluate(model, data, rules); }, testing::Throws<Error>());
}

// Pairs of two subsets whose better answer has more letters, but for one.
TaskData pairs_of_answers(const std::filesystem::path& file) {
  write_text_file(file,
                  R"({"prompt": "p", "chosen": "long", "rejected": "no", "subset": "hep-go"}
{"prompt": "p", "chosen": "no", "rejected": "long", "subset": "hep-js"}
{"prompt": "q", "chosen": "longer", "rejected": "long", "subset": "donotanswer"}
{"prompt": "r", "chosen": "longest", "rejected": "x", "subset": "hep-go"}
)");
  TaskData data = load_task(find_task("rewardbench", {}), {.paths = {file.string()}});
  for (TaskSample& sample : data.samples) {
    sample.contexts.clear();
    for (const std::string& answer : sample.choices)
      sample.contexts.push_back(sample.asked[0] + answer);
  }
  return data;
}

TEST(Evaluation, OfPreferencesIsTheShareOfHigherRewardsByCategory) {
  const TempFolder folder;
  const TaskData data = pairs_of_answers(folder / "rewardbench.jsonl");
  ScriptedModel model;
  const TaskEvaluation evaluation = evaluate(model, data);
  EXPECT_EQ(evaluation.responses[0].log_likelihoods, std::vector<double>({5, 3}));
  std::map<std::string, std::pair<std::int64_t, double>> scores;
  for (const GroupScore& group : scores_of(evaluation))
    scores[group.name] = {group.samples, group.values[0].value};
  const std::map<std::string, std::pair<std::int64_t, double>> wanted = {
      {"rewardbench", {4, 0.75}},     {"rewardbench_reasoning", {3, 2.0 / 3}},
      {"rewardbench_safety", {1, 1}}, {"rewardbench_hep-go", {2, 1}},
      {"rewardbench_hep-js", {1, 0}}, {"rewardbench_donotanswer", {1, 1}}};
  EXPECT_EQ(scores, wanted);
  const auto json = results_json({evaluation}, {});
  EXPECT_EQ(json["results"]["rewardbench"]["acc,none"], 0.75);
  EXPECT_TRUE(json["groups"].contains("rewardbench_safety"));
  EXPECT_FALSE(json["groups"].contains("rewardbench_hep-js"));
  EXPECT_FALSE(json.contains("computation"));
  EXPECT_THAT(sample_lines(evaluation), testing::HasSubstr("\"rewards\":[5.0,3.0]"));
}

TEST(Evaluation, OfPreferencesContinuesWhereItWasKilled) {
  const TempFolder folder;
  const TaskData data = pairs_of_answers(folder / "rewardbench.jsonl");
  const EvaluationRules rules{.round_tokens = 1, .journal = folder / "journal"};
  ScriptedModel model;
  model.fails_after = 4;
  EXPECT_THROW(evaluate(model, data, rules), std::runtime_error);
  model.fails_after = 1000;
  const TaskEvaluation rest = evaluate(model, data, rules);
  EXPECT_GT(rest.restored, 0);
  EXPECT_LT(rest.restored, 8);
  EXPECT_EQ(rest.responses, evaluate(model, data).responses);
  // A conversation that does not fit keeps its end.
  model.longest = 4;
  const TaskEvaluation cut = evaluate(model, data);
  EXPECT_EQ(cut.responses[3].log_likelihoods, std::vector<double>({4, 2}));
  EXPECT_EQ(cut.cut_samples, std::set<std::size_t>({0, 1, 2, 3}));
}

TEST(Evaluation, CountsPromptsThatWereCutAndEmptyAnswers) {
  const TaskData data = mmlu();
  ScriptedModel model;
  model.longest = 60;
  const TaskEvaluation cut = evaluate(model, data);
  EXPECT_EQ(cut.cut_prompts, 20);
  EXPECT_EQ(cut.cut_samples, std::set<std::size_t>({0, 1, 2, 3, 4}));
  EXPECT_THAT(sample_lines(cut), testing::HasSubstr("\"cut\":true"));
  const TaskData words = load_task(find_task("gsm8k", {}), {.paths = {kData}, .num_shots = 0});
  ScriptedModel silent;
  const TaskEvaluation evaluation = evaluate(silent, words, {.requests = {.max_new_tokens = 16}});
  EXPECT_EQ(evaluation.empty_answers, 2);
  EXPECT_EQ(evaluation.cut_prompts, 0);
}

// "Yes" wins a tie, as in MindSpeed-LLM.
TEST(Evaluation, OfBoolqByMindSpeedComparesTheNextToken) {
  const TaskData data =
      load_task(find_task("boolq", {.protocol = Protocol::kMindSpeed}), {.paths = {kData}});
  ScriptedModel model;
  model.likelihood = [](const std::string&, const std::string&) { return -1.0; };
  const TaskEvaluation evaluation = evaluate(model, data);
  EXPECT_EQ(evaluation.scores[0].answer, "Yes");
  EXPECT_EQ(value_of(evaluation), 2.0 / 3);
}

}  // namespace
}  // namespace piton
