#include "tasks/task_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tasks/task_table.h"

namespace piton {
namespace {

std::vector<double> values_of(const SampleScore& score) {
  std::vector<double> values;
  for (const SampleMetric& metric : score.metrics) values.push_back(metric.value);
  return values;
}

TEST(SampleScore, DividesByCharactersAndBytes) {
  const Task task{.metrics = {"acc", "acc_norm", "acc_bytes"}};
  // By sum the first choice, by characters the third, by bytes the second.
  const TaskSample sample{.choices = {"ab", "中中", "abcdefg"}, .gold = {1}};
  const SampleScore score = score_sample(task, sample, {.log_likelihoods = {-3, -4, -7.2}});
  EXPECT_EQ(values_of(score), std::vector<double>({0, 0, 1}));
  EXPECT_EQ(score.answer, "ab");
  EXPECT_FALSE(score.correct);
}

TEST(SampleScore, TakesTheFirstOfEqualChoicesAndAllowsSeveralRightOnes) {
  const Task task{.metrics = {"acc"}};
  const TaskSample sample{.choices = {"a", "b", "c"}, .gold = {0, 2}};
  EXPECT_TRUE(score_sample(task, sample, {.log_likelihoods = {-1, -1, -2}}).correct);
  EXPECT_FALSE(score_sample(task, sample, {.log_likelihoods = {-1, -0.5, -2}}).correct);
  EXPECT_TRUE(score_sample(task, sample, {.log_likelihoods = {-1, -0.5, -0.2}}).correct);
}

// The second record has an instruction that is not checked.
TEST(SampleScore, OfInstructionsCountsThoseThatAreChecked) {
  Task task{.kind = TaskKind::kGeneration};
  task.has_instructions = true;
  const TaskSample first{.answer = R"({"instruction_id_list": ["punctuation:no_comma",
      "startend:quotation", "detectable_format:title"], "kwargs": [{}, {}, {}]})"};
  const TaskSample second{.answer = R"({"instruction_id_list": ["punctuation:no_comma",
      "language:response_language"], "kwargs": [{}, {"language": "de"}]})"};
  const TaskSample third{.answer = R"({"instruction_id_list": ["punctuation:no_comma"],
      "kwargs": [{}]})"};
  const SampleScore one = score_sample(task, first, {.text = "*\"<<a>>, b\""});
  const SampleScore two = score_sample(task, second, {.text = "Ja"});
  const SampleScore three = score_sample(task, third, {.text = "Ja"});
  EXPECT_EQ(one.answer, "follows 1 of 3 instructions");
  EXPECT_FALSE(one.correct);
  EXPECT_TRUE(three.correct);
  const GroupScore group = group_score("ifeval", {&one, &two, &three}, {"", "", ""});
  std::map<std::string, double> values;
  for (const MetricValue& value : group.values) {
    values[value.metric] = value.value;
    EXPECT_EQ(value.standard_error.has_value(), value.metric.starts_with("prompt_"))
        << value.metric;
  }
  EXPECT_EQ(values, (std::map<std::string, double>{{"prompt_level_strict_acc", 0.5},
                                                   {"inst_level_strict_acc", 3.0 / 5},
                                                   {"prompt_level_loose_acc", 0.5},
                                                   {"inst_level_loose_acc", 4.0 / 5},
                                                   {"inst_checked", 5.0 / 6}}));
}

TEST(SampleScore, OfProbabilitiesIsTheShareOfTheRightChoices) {
  Task task{.metrics = {"acc"}};
  task.scores_probability = true;
  const TaskSample sample{.choices = {"a", "b", "c"}, .gold = {0, 2}};
  const double log2 = std::log(2.0);
  for (const double offset : {0.0, -2000.0}) {  // exp(-2000) is 0
    const SampleScore score =
        score_sample(task, sample, {.log_likelihoods = {offset, offset + log2, offset + 2 * log2}});
    ASSERT_EQ(score.metrics.size(), 1U);
    EXPECT_NEAR(score.metrics[0].value, 5.0 / 7, 1e-9);
    EXPECT_TRUE(score.correct);
  }
}

TEST(SampleScore, HasOneOfSeveralRightTexts) {
  Task task{.kind = TaskKind::kGeneration};
  task.metrics = {"exact_match"};
  task.filters = {{}};
  const TaskSample sample{.answer = "one", .other_answers = {"1", "single"}};
  for (const char* text : {"one", "single"})
    EXPECT_TRUE(score_sample(task, sample, {.text = text}).correct);
  EXPECT_FALSE(score_sample(task, sample, {.text = "two"}).correct);
}

TEST(SampleScore, OfAPreferenceNeedsTheHigherReward) {
  const Task task{.kind = TaskKind::kPreference, .metrics = {"acc"}};
  const TaskSample sample{.choices = {"good", "bad"}, .gold = {0}};
  const SampleScore right = score_sample(task, sample, {.log_likelihoods = {-0.5, -0.75}});
  EXPECT_EQ(values_of(right), std::vector<double>({1}));
  EXPECT_EQ(right.answer, "good");
  const SampleScore equal = score_sample(task, sample, {.log_likelihoods = {2, 2}});
  EXPECT_EQ(values_of(equal), std::vector<double>({0}));
  EXPECT_EQ(equal.answer, "bad");
  EXPECT_FALSE(score_sample(task, sample, {.log_likelihoods = {1, 2}}).correct);
}

TEST(SampleScore, OfATextIsThatOfEachFilter) {
  Task task{.kind = TaskKind::kGeneration};
  task.metrics = {"exact_match"};
  task.filters = {{.name = "strict", .pattern = "#### \\K[0-9]+"},
                  {.name = "flexible", .pattern = "[0-9]+", .last = true}};
  const TaskSample sample{.answer = "5"};
  const SampleScore score = score_sample(task, sample, {.text = "2 + 3 = 5"});
  EXPECT_EQ(values_of(score), std::vector<double>({0, 1}));
  EXPECT_EQ(score.answer, "[invalid]");
}

TEST(SampleScore, OfAProgramIsWhetherItPassed) {
  const Task task = find_task("humaneval", {});
  const SampleScore passed =
      score_sample(task, {}, {.text = "    return 1", .verdicts = {"passed"}});
  EXPECT_EQ(values_of(passed), std::vector<double>({1}));
  EXPECT_EQ(passed.metrics[0].metric, "pass@1");
  EXPECT_EQ(passed.metrics[0].filter, "create_test");
  const SampleScore failed = score_sample(task, {}, {.verdicts = {"timed out"}});
  EXPECT_EQ(values_of(failed), std::vector<double>({0}));
  EXPECT_EQ(failed.answer, "timed out");
}

// Numbers of estimate_pass_at_k() of evalplus 0.3.1.
TEST(SampleScore, OfSeveralProgramsIsTheChanceThatOneOfKPasses) {
  EXPECT_EQ(pass_at_k(1, 1, 1), 1);
  EXPECT_EQ(pass_at_k(4, 0, 2), 0);
  EXPECT_EQ(pass_at_k(10, 1, 10), 1);
  EXPECT_NEAR(pass_at_k(5, 2, 3), 0.9, 1e-15);
  EXPECT_NEAR(pass_at_k(200, 7, 1), 0.03499999999999992, 1e-14);
  EXPECT_NEAR(pass_at_k(200, 7, 10), 0.3055988116177335, 1e-14);
  EXPECT_NEAR(pass_at_k(200, 7, 100), 0.9929911172418123, 1e-14);
  Task task = find_task("mbpp", {});
  task.pass_at = {1, 3};
  const SampleScore score = score_sample(
      task, {}, {.verdicts = {"passed", "timed out", "timed out", "passed", "exit code 1: x"}});
  EXPECT_EQ(score.metrics[0].metric, "pass_at_1");
  EXPECT_EQ(score.metrics[1].metric, "pass_at_3");
  EXPECT_NEAR(score.metrics[0].value, 0.4, 1e-15);
  EXPECT_NEAR(score.metrics[1].value, 0.9, 1e-15);
  EXPECT_EQ(score.answer, "2 of 5 passed");
}

// sqrt(p (1 - p) / (n - 1)) of one subject.
TEST(GroupScore, HasTheStandardErrorOfAMean) {
  std::vector<SampleScore> scores(5);
  std::vector<const SampleScore*> pointers;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i].metrics = {{.metric = "acc", .value = i < 2 ? 1.0 : 0.0}};
    pointers.push_back(&scores[i]);
  }
  const GroupScore one = group_score("t", pointers, std::vector<std::string>(5, "s"));
  EXPECT_DOUBLE_EQ(one.values[0].value, 0.4);
  EXPECT_NEAR(one.values[0].standard_error.value(), std::sqrt(0.4 * 0.6 / 4), 1e-12);
  // pooled_sample_stderr([0, sqrt(0.25/2)], [2, 3]) of lm-evaluation-harness, where the subjects
  // have the values 1 1 and 0 0 0: no spread within a subject.
  const GroupScore pooled = group_score("t", pointers, {"a", "a", "b", "b", "b"});
  EXPECT_DOUBLE_EQ(pooled.values[0].value, 0.4);
  EXPECT_DOUBLE_EQ(pooled.values[0].standard_error.value(), 0);
  EXPECT_FALSE(group_score("t", {pointers[0]}, {"a"}).values[0].standard_error.has_value());
}

TEST(GroupScore, WeighsPerplexitiesByTheirSizes) {
  const Task task{.kind = TaskKind::kPerplexity,
                  .metrics = {"word_perplexity", "byte_perplexity", "bits_per_byte"}};
  const TaskSample first{.answer = "a b c"};
  const TaskSample second{.answer = "é"};
  const SampleScore a = score_sample(task, first, {.log_likelihoods = {-6}});
  const SampleScore b = score_sample(task, second, {.log_likelihoods = {-2}});
  const GroupScore group = group_score("t", {&a, &b}, {"", ""});
  EXPECT_DOUBLE_EQ(group.values[0].value, std::exp(8.0 / 4));
  EXPECT_DOUBLE_EQ(group.values[1].value, std::exp(8.0 / 7));
  EXPECT_DOUBLE_EQ(group.values[2].value, 8.0 / 7 / std::log(2.0));
  EXPECT_FALSE(group.values[0].higher_is_better);
  // A text without a token has no likelihood to ask for. Python's re.split() makes one word of it.
  const SampleScore none = score_sample(task, TaskSample{}, {});
  const GroupScore with_none = group_score("t", {&a, &b, &none}, {"", "", ""});
  EXPECT_DOUBLE_EQ(with_none.values[0].value, std::exp(8.0 / 5));
  EXPECT_DOUBLE_EQ(with_none.values[1].value, std::exp(8.0 / 7));
}

}  // namespace
}  // namespace piton
