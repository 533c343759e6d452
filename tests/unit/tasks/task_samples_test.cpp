// The prompts of lm-evaluation-harness, to the byte: tests/golden/evaluation, made by
// tools/oracle/evaluation.py.
#include "tasks/task_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "data/records/block_reader.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tasks/task_table.h"
#include "unit/tasks/golden_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::kGolden;
using testing::ElementsAre;
using testing::HasSubstr;

const fs::path kBench = fs::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "bench";

std::vector<nlohmann::json> golden_tasks(const std::string& file) {
  std::vector<nlohmann::json> tasks;
  std::istringstream lines(read_text_file(kGolden / file));
  for (std::string line; std::getline(lines, line);)
    tasks.push_back(read_json<nlohmann::json>(line));
  return tasks;
}

// The data of one subject, as a golden record has them.
TaskData data_of(const nlohmann::json& golden, const fs::path& root) {
  Task task = find_task(golden["task"], {});
  const std::string subject = golden["subject"];
  TaskDataOptions options{.paths = {root.string()},
                          .num_shots = golden["num_shots"].get<std::int64_t>()};
  if (golden["limit"].is_number()) options.max_samples = golden["limit"].get<std::int64_t>();
  TaskData data = load_task(task, options);
  if (!subject.empty())
    std::erase_if(data.samples, [&](const TaskSample& one) { return one.subject != subject; });
  return data;
}

TEST(TaskSamples, HaveThePromptsOfLmEvaluationHarness) {
  std::size_t compared = 0;
  for (const auto& golden : golden_tasks("small.jsonl")) {
    SCOPED_TRACE(golden["task"].get<std::string>() + " " + golden["subject"].get<std::string>());
    const TaskData data = data_of(golden, kGolden / "data");
    ASSERT_EQ(data.samples.size(), golden["samples"].size());
    for (std::size_t i = 0; i < data.samples.size(); ++i) {
      SCOPED_TRACE(i);
      const auto& wanted = golden["samples"][i];
      EXPECT_EQ(data.samples[i].contexts, wanted["contexts"].get<std::vector<std::string>>());
      EXPECT_EQ(data.samples[i].continuations,
                wanted["continuations"].get<std::vector<std::string>>());
      ++compared;
    }
    const bool is_whole = data.samples.size() == load_task(find_task(golden["task"], {}),
                                                           {.paths = {(kGolden / "data").string()}})
                                                     .samples.size();
    if (is_whole) {
      EXPECT_EQ(data.prompt_hash, golden["prompt_hash"].get<std::string>());
    }
  }
  EXPECT_GE(compared, 36U);
}

// Data sets that may not be copied into the repository.
TEST(TaskSamples, OfPublishedDataHaveThePromptsOfLmEvaluationHarness) {
  if (!fs::exists(kBench)) GTEST_SKIP() << "no data at " << kBench;
  const TempFolder folder;
  for (const auto& golden : golden_tasks("published.jsonl")) {
    const std::string task = golden["task"];
    const std::string subject = golden["subject"];
    SCOPED_TRACE(task + " " + subject);
    // One subject alone, so that the hash is that of its prompts.
    const fs::path root = folder / (task + subject);
    fs::create_directories(root / task);
    for (const auto& entry : fs::recursive_directory_iterator(kBench)) {
      const fs::path relative = entry.path().lexically_relative(kBench);
      const std::string name = relative.filename().string();
      if (!entry.is_regular_file() || relative.string().find(task) != 0) continue;
      if (!subject.empty() && !name.starts_with(subject)) continue;
      const fs::path to =
          relative.string().starts_with(task + "/") ? root / relative : root / task / name;
      fs::create_directories(to.parent_path());
      fs::create_symlink(entry.path(), to);
    }
    const TaskData data = data_of(golden, root);
    EXPECT_EQ(data.samples.size(), golden["samples"].size());
    EXPECT_EQ(data.prompt_hash, golden["prompt_hash"].get<std::string>());
  }
}

TEST(TaskSamples, RecordTheirExamplesAndAnswers) {
  const TaskDataOptions options{.paths = {(kGolden / "data").string()}};
  const TaskData mmlu = load_task(find_task("mmlu", {}), options);
  EXPECT_EQ(mmlu.num_shots, 5);
  EXPECT_THAT(mmlu.samples[0].shots, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(mmlu.samples[0].gold, ElementsAre(0));
  EXPECT_THAT(mmlu.samples[0].choices, ElementsAre("A", "B", "C", "D"));
  const TaskData gsm8k = load_task(find_task("gsm8k", {}), options);
  EXPECT_NE(gsm8k.samples[0].shots, gsm8k.samples[1].shots);  // drawn for each question
}

// The files of Hugging Face's cais/mmlu: one for all subjects, in any order.
TEST(TaskSamples, OfOneFileHaveTheShotsOfTheirSubject) {
  const auto record = [](const char* question, const char* subject) {
    return fmt::format(
               R"({{"question": "{}", "choices": ["1", "2", "3", "4"], "answer": 1, "subject": "{}"}})",
               question, subject) +
           "\n";
  };
  const TempFolder folder;
  for (const char* at : {"all/mmlu/all/", "one/mmlu/"}) {
    write_text_file(
        folder / at / "test.jsonl",
        record("v1", "virology") + record("m1", "machine_learning") + record("v2", "virology"));
    write_text_file(folder / at / "dev.jsonl",
                    record("ms", "machine_learning") + record("vs", "virology"));
  }
  // The subjects again in folders: "all" is left out.
  write_text_file(folder / "both/mmlu/all/test.jsonl", record("v1", "virology"));
  write_text_file(folder / "both/mmlu/virology/test.jsonl", record("v1", "virology"));
  write_text_file(folder / "both/mmlu/virology/dev.jsonl", record("vs", "virology"));
  const auto load = [&](const char* root, const Task& task) {
    return load_task(task, {.paths = {(folder / root / "mmlu").string()}, .num_shots = 1});
  };
  EXPECT_EQ(load("both", find_task("mmlu", {})).samples.size(), 1U);
  for (const char* root : {"all", "one"}) {
    SCOPED_TRACE(root);
    const TaskData data = load(root, find_task("mmlu", {}));
    ASSERT_EQ(data.samples.size(), 3U);
    EXPECT_EQ(data.samples[0].subject, "machine_learning");
    EXPECT_THAT(data.samples[0].contexts[0],
                testing::StartsWith("The following are multiple choice questions (with answers) "
                                    "about machine learning.\n\nms\n"));
    EXPECT_EQ(data.samples[2].subject, "virology");
    EXPECT_EQ(data.samples[2].index, 2);
    EXPECT_THAT(data.samples[2].contexts[0], HasSubstr("about virology.\n\nvs\n"));
    EXPECT_THAT(data.samples[2].contexts[0], HasSubstr("\n\nv2\n"));
    const TaskData alternative = load(
        root, find_task("mmlu", {.protocol = Protocol::kMindSpeed, .alternative_prompt = true}));
    ASSERT_EQ(alternative.samples.size(), 3U);
    EXPECT_EQ(alternative.samples[0].subject, "machine_learning");
    EXPECT_THAT(alternative.samples[0].contexts[0],
                HasSubstr("question about machine learning. Answer the question by replying A, B, "
                          "C or D. \nQuestion: ms\n"));
  }
  TaskDataOptions limited{.paths = {(folder / "one/mmlu").string()}, .num_shots = 1};
  limited.max_samples = 1;
  EXPECT_EQ(load_task(find_task("mmlu", {}), limited).samples.size(), 2U);
  limited.num_shots = 2;
  EXPECT_THAT(message_of(Fault::kData, [&] { load_task(find_task("mmlu", {}), limited); }),
              HasSubstr("got 1 examples of machine_learning, --num-shots 2 needs 2"));
}

TEST(TaskSamples, ReadBothLayoutsOfMmlu) {
  const TempFolder folder;
  write_text_file(folder / "csv/mmlu/test/virology_test.csv", "Is it None?,None,NA,3,\"4, 5\",B\n");
  write_text_file(
      folder / "json/mmlu/virology/test.jsonl",
      "{\"question\": \"Is it None?\", \"subject\": \"virology\", \"choices\": [\"None\", "
      "\"NA\", \"3\", \"4, 5\"], \"answer\": 1}\n");
  const auto load = [&](const char* layout) {
    return load_task(find_task("mmlu", {}),
                     {.paths = {(folder / layout).string()}, .num_shots = 0});
  };
  const TaskData csv = load("csv");
  EXPECT_EQ(csv.samples[0].contexts[0],
            "The following are multiple choice questions (with answers) about virology.\n\nIs it "
            "None?\nA. None\nB. NA\nC. 3\nD. 4, 5\nAnswer:");
  EXPECT_EQ(csv.prompt_hash, load("json").prompt_hash);
  EXPECT_THAT(load("json").samples[0].gold, ElementsAre(1));
}

TEST(TaskSamples, ThatAreMissingAreNamed) {
  const TempFolder folder;
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,3,4,A\n");
  const auto load = [&](const TaskDataOptions& options) {
    return [&folder, options] {
      TaskDataOptions with_path = options;
      with_path.paths = {(folder / "mmlu").string()};
      load_task(find_task("mmlu", {}), with_path);
    };
  };
  EXPECT_THAT(
      message_of(Fault::kUsage, load({})),
      HasSubstr("no examples of virology; wanted dev/virology_dev.csv there for 5 examples, "
                "or --num-shots 0"));
  write_text_file(folder / "mmlu/dev/virology_dev.csv", "q,1,2,3,4,A\n");
  EXPECT_THAT(message_of(Fault::kData, load({})),
              HasSubstr("virology_dev.csv: got 1 examples, --num-shots 5 needs 5"));
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,A\n");
  EXPECT_THAT(message_of(Fault::kData, load({.num_shots = 0})),
              HasSubstr("virology_test.csv: line 1: got 4 columns, wanted 6: question, A, B, C, D, "
                        "answer"));
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,3,4,E\n");
  EXPECT_THAT(message_of(Fault::kData, load({.num_shots = 0})),
              HasSubstr("record 1: the answer is \"E\"; wanted one of A, B, C, D"));
  write_text_file(folder / "mmlu/test/virology_test.csv", "question,other\nq,x\n");
  EXPECT_THAT(message_of(Fault::kData, load({.num_shots = 0})),
              HasSubstr("got the fields other, question; wanted question, A, B, C, D, answer"));
}

// The prompts of AscendSpeed and MindSpeed-LLM, with the examples that these programs have.
TEST(TaskSamples, OfMindSpeedSurroundTheQuestionWithWrittenExamples) {
  const TempFolder folder;
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,3,4,A\n");
  write_text_file(folder / "fewshot/mmlu_5shot_template.json", "{\"virology\": \"EXAMPLES\"}");
  write_text_file(folder / "agieval/sat-en.jsonl",
                  "{\"passage\": null, \"question\": \"q\", \"options\": [\"(A)x\", \"(B)y\"], "
                  "\"label\": \"B\"}");
  write_text_file(folder / "fewshot/AGI_fewshot.json",
                  "{\"sat-en\": [\"Problem 6.\", \"\\nChoose:\\n\", \"\\nAnswer:\"]}");
  write_text_file(folder / "bbh/navigate.json",
                  "{\"examples\": [{\"input\": \"go\", \"target\": \"(A)\"}]}");
  write_text_file(folder / "fewshot/bbh_template.json", "{\"navigate\": \"Q: x\\nA: y\\n\\n\"}");
  write_text_file(folder / "gsm8k/test.json",
                  "[{\"question\": \"how?\", \"answer\": [\"1,200\"]}]");
  write_text_file(folder / "fewshot/gsm8k_3shot_template.json", "{\"few_shot\": \"Q: x\"}");
  write_text_file(folder / "ceval/val/law_val.csv", "id,question,A,B,C,D,answer\n0,问,1,2,3,4,C\n");
  write_text_file(folder / "fewshot/ceval_5shot_template.json", "{\"law\": \"例\"}");
  const auto sample = [&](const char* name) {
    return load_task(find_task(name, {.protocol = Protocol::kMindSpeed}),
                     {.paths = {folder.path().string()}})
        .samples.at(0);
  };
  EXPECT_EQ(sample("mmlu").contexts[0], "EXAMPLES\n\nq\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  EXPECT_EQ(sample("agieval").contexts[0], "Problem 6.   q\n\nChoose:\n\n(A)x\n(B)y\n\nAnswer:");
  EXPECT_EQ(sample("agieval").answer, "B");
  EXPECT_EQ(sample("bbh").contexts[0], "Q: x\nA: y\n\nQ: go\nA:");
  EXPECT_EQ(sample("gsm8k").contexts[0], "Q: x\n\nhow?");
  EXPECT_EQ(sample("gsm8k").answer, "1200");
  EXPECT_EQ(sample("ceval").contexts[0], "例\n\n问：问\nA. 1\nB. 2\nC. 3\nD. 4\n答：");
}

TEST(TaskSamples, OfMindSpeedNameTheFileOfExamplesThatIsMissing) {
  const TempFolder folder;
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,3,4,A\n");
  const Task task = find_task("mmlu", {.protocol = Protocol::kMindSpeed});
  const auto load = [&](std::int64_t shots) {
    return [&, shots] {
      load_task(task, {.paths = {(folder / "mmlu").string()}, .num_shots = shots});
    };
  };
  EXPECT_THAT(message_of(Fault::kUsage, load(5)),
              HasSubstr("--few-shot-path: mmlu_5shot_template.json is not in "));
  EXPECT_THAT(
      message_of(Fault::kUsage, load(3)),
      HasSubstr("--num-shots: got 3; the examples of mmlu are a fixed text, wanted 5 or 0"));
  load(0)();
}

// math.ceil(len(questions) * limit) of lm-evaluation-harness, of each subject.
TEST(TaskSamples, MayBeAShareOfEachSubject) {
  const TempFolder folder;
  for (const auto& [subject, count] : {std::pair{"anatomy", 7}, {"virology", 3}}) {
    std::string rows;
    for (int i = 0; i < count; ++i) rows += fmt::format("q{},1,2,3,4,A\n", i);
    write_text_file(folder / fmt::format("mmlu/test/{}_test.csv", subject), rows);
  }
  const auto samples = [&](double share) {
    return load_task(find_task("mmlu", {}),
                     {.paths = {folder.path().string()}, .num_shots = 0, .sample_share = share})
        .samples;
  };
  EXPECT_EQ(samples(0.3).size(), 3U + 1U);
  EXPECT_EQ(samples(0.3).back().subject, "virology");
  EXPECT_EQ(samples(0.99).size(), 10U);
  EXPECT_EQ(samples(1e-6).size(), 2U);
}

// As lm-evaluation-harness: the answer of ARC is the place of its label, and a choice may be the
// text "1".
TEST(TaskSamples, OfChoicesThatAreNumbersHaveTheirPlaceAsTheAnswer) {
  const TempFolder folder;
  write_text_file(folder / "arc_easy" / "test.jsonl",
                  R"({"question": "How many?", "answerKey": "B", "choices": {"text": ["1", "2", )"
                  R"("3", "0"], "label": ["A", "B", "C", "D"]}})"
                  "\n"
                  R"({"question": "How many?", "answerKey": "A", "choices": {"text": ["1", "0"], )"
                  R"("label": ["A", "B"]}})"
                  "\n");
  const TaskData arc = load_task(find_task("arc_easy", {}), {.paths = {folder.path().string()}});
  ASSERT_EQ(arc.samples.size(), 2U);
  EXPECT_THAT(arc.samples[0].gold, ElementsAre(1));
  EXPECT_THAT(arc.samples[1].gold, ElementsAre(0));
  // In a task of one's own a text is the choice that it spells.
  write_text_file(folder / "own.toml",
                  "prompt = \"{q}\"\nchoices-field = \"c\"\nanswer = \"{a}\"\n");
  write_text_file(folder / "own" / "test.jsonl",
                  "{\"q\": \"?\", \"c\": [\"1\", \"2\"], \"a\": 1}\n"
                  "{\"q\": \"?\", \"c\": [\"1\", \"2\"], \"a\": \"1\"}\n"
                  "{\"q\": \"?\", \"c\": [\"5\", \"7\"], \"a\": 7}\n");
  const TaskData own = load_task(find_task((folder / "own.toml").string(), {}),
                                 {.paths = {(folder / "own").string()}});
  ASSERT_EQ(own.samples.size(), 3U);
  EXPECT_THAT(own.samples[0].gold, ElementsAre(1));
  EXPECT_THAT(own.samples[1].gold, ElementsAre(0));
  EXPECT_THAT(own.samples[2].gold, ElementsAre(1));
}

// convert_zero_shot() of AGIEval.
TEST(TaskSamples, OfAgievalAreDividedByWhetherThereAreOptions) {
  const TempFolder folder;
  write_text_file(
      folder / "math.jsonl",
      R"({"passage": null, "question": "What is 3 + 4?", "options": null, "label": null, )"
      R"("answer": "$7$"})"
      "\n");
  write_text_file(folder / "gaokao-mathcloze.jsonl",
                  R"({"passage": "", "question": "求3+4", "options": null, "answer": "7"})"
                  "\n");
  write_text_file(
      folder / "sat-math.jsonl",
      R"x({"passage": "", "question": "Q?", "options": ["(A)1", "(B)2"], "label": "B"})x"
      "\n");
  const TaskData cloze =
      load_task(find_task("agieval_cloze", {}), {.paths = {folder.path().string()}});
  ASSERT_EQ(cloze.samples.size(), 2U);
  EXPECT_THAT(cloze.samples[0].contexts, ElementsAre("问题：求3+4\n答案："));
  EXPECT_THAT(cloze.samples[1].contexts, ElementsAre("Q: What is 3 + 4?\nA: The answer is"));
  EXPECT_EQ(cloze.samples[1].answer, "$7$");
  const TaskData choices = load_task(find_task("agieval", {}), {.paths = {folder.path().string()}});
  ASSERT_EQ(choices.samples.size(), 1U);
  EXPECT_EQ(choices.samples[0].subject, "sat-math");
}

// As Hugging Face has them; made by tools/oracle/evaluation_parquet.py of the same records.
TEST(TaskSamples, OfParquetFilesAreThoseOfJsonFiles) {
  if (!can_read_parquet()) GTEST_SKIP() << "this build has no Apache Arrow";
  for (const char* name : {"boolq", "hellaswag", "arc_easy", "piqa", "winogrande", "gsm8k"}) {
    SCOPED_TRACE(name);
    const Task task = find_task(name, {});
    const TaskData there =
        load_task(task, {.paths = {(kGolden / "data").string()}, .num_shots = 0});
    const TaskData here =
        load_task(task, {.paths = {(kGolden / "parquet").string()}, .num_shots = 0});
    EXPECT_EQ(here.prompt_hash, there.prompt_hash);
    ASSERT_EQ(here.samples.size(), there.samples.size());
    for (std::size_t i = 0; i < here.samples.size(); ++i) {
      EXPECT_EQ(here.samples[i].gold, there.samples[i].gold);
      EXPECT_EQ(here.samples[i].answer, there.samples[i].answer);
    }
  }
}

TEST(TaskSamples, OfADamagedParquetFileAreRefused) {
  if (!can_read_parquet()) GTEST_SKIP() << "this build has no Apache Arrow";
  const TempFolder folder;
  write_text_file(folder / "test.parquet", "PAR1 no file");
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           load_task(
                               find_task("gsm8k", {}),
                               {.paths = {(folder / "test.parquet").string()}, .num_shots = 0});
                         }),
              HasSubstr("test.parquet: row 0: cannot be read as Parquet"));
}

// It would be a text without letters, which no answer is.
TEST(TaskSamples, OfARecordWithoutTheRightAnswerAreRefused) {
  const TempFolder folder;
  write_text_file(folder / "test.jsonl", R"({"question": "a", "answer": "b"})"
                                         "\n"
                                         R"({"question": "a", "answer": null})"
                                         "\n");
  Task task{.name = "own", .kind = TaskKind::kGeneration};
  task.splits = {"test"};
  task.prompt = "{question}";
  task.answer = "{answer}";
  EXPECT_THAT(
      message_of(Fault::kData, [&] { load_task(task, {.paths = {folder.path().string()}}); }),
      HasSubstr("record 2: {answer} is null; wanted the right answer"));
}

}  // namespace
}  // namespace piton
