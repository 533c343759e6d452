#include "tasks/task_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Parts = std::pair<std::string, std::string>;

Parts parts_of(const std::string& path) {
  const TaskFile file = task_file_of(path);
  return {file.subject, file.split};
}

TEST(TaskFile, HasItsSubjectAndSplitInItsName) {
  EXPECT_EQ(parts_of("test/anatomy_test.csv"), Parts("anatomy", "test"));
  EXPECT_EQ(parts_of("val/high_school_physics_val.csv"), Parts("high_school_physics", "val"));
  EXPECT_EQ(parts_of("dev/agronomy.csv"), Parts("agronomy", "dev"));
  EXPECT_EQ(parts_of("test.jsonl"), Parts("", "test"));
  EXPECT_EQ(parts_of("anatomy/test-00000-of-00001.jsonl.gz"), Parts("anatomy", "test"));
  EXPECT_EQ(parts_of("test/world_religions.csv"), Parts("world_religions", "test"));
  EXPECT_EQ(parts_of("boolq_dev.jsonl"), Parts("boolq", "dev"));
  EXPECT_EQ(parts_of("hellaswag_val_subset.jsonl"), Parts("hellaswag_val_subset", "val"));
  EXPECT_EQ(parts_of("sat-math.jsonl"), Parts("sat-math", ""));
  EXPECT_EQ(parts_of("wiki.test.raw"), Parts("wiki", "test"));
}

class TaskFilesOfAFolder : public testing::Test {
 protected:
  void make(const std::string& path) { write_text_file(folder_ / path, "x\n"); }
  std::vector<std::string> names(const std::vector<TaskFile>& files) {
    std::vector<std::string> names;
    for (const TaskFile& file : files)
      names.push_back(file.path.lexically_relative(folder_.path()).string());
    return names;
  }
  TempFolder folder_;
  Task task_{.name = "mmlu", .splits = {"test"}, .shot_splits = {"dev"}, .has_subjects = true};
};

TEST_F(TaskFilesOfAFolder, AreThoseOfTheSplitsBySubject) {
  for (const char* path : {"mmlu/test/b_test.csv", "mmlu/test/a_test.csv", "mmlu/dev/a_dev.csv",
                           "mmlu/val/a_val.csv", "mmlu/README.md", "mmlu/notes.txt"})
    make(path);
  for (const char* given : {"mmlu", "mmlu/test", "mmlu/", "."}) {
    SCOPED_TRACE(given);
    const auto path = task_data_path("mmlu", {(folder_ / given).string()});
    const TaskFiles files = find_task_files(task_, path);
    EXPECT_THAT(names(files.questions),
                ElementsAre("mmlu/test/a_test.csv", "mmlu/test/b_test.csv"));
    EXPECT_THAT(names(files.shots), ElementsAre("mmlu/dev/a_dev.csv"));
  }
}

TEST_F(TaskFilesOfAFolder, MayBeOneFile) {
  make("test.jsonl");
  make("train.jsonl");
  const Task task{.name = "gsm8k", .splits = {"test"}, .shot_splits = {"train"}};
  const TaskFiles files = find_task_files(task, folder_ / "test.jsonl");
  EXPECT_THAT(names(files.questions), ElementsAre("test.jsonl"));
  EXPECT_THAT(names(files.shots), ElementsAre("train.jsonl"));
}

// AscendSpeed's text has BoolQ's validation split in dataset/boolq/test.
TEST_F(TaskFilesOfAFolder, ThatIsCalledAsASplitAreItsQuestionsWhateverTheyAreCalled) {
  make("boolq/test/validation.jsonl");
  make("boolq/train.jsonl");
  const Task task{.name = "boolq", .splits = {"validation"}, .shot_splits = {"train"}};
  const TaskFiles files = find_task_files(task, folder_ / "boolq/test");
  EXPECT_THAT(names(files.questions), ElementsAre("boolq/test/validation.jsonl"));
  EXPECT_THAT(names(files.shots), ElementsAre("boolq/train.jsonl"));
}

TEST_F(TaskFilesOfAFolder, WithoutSplitsAreAllQuestions) {
  make("sat-math.jsonl");
  make("few_shot_prompts.csv");
  const Task task{.name = "agieval", .splits = {"test"}, .has_subjects = true};
  EXPECT_THAT(names(find_task_files(task, folder_.path()).questions),
              ElementsAre("sat-math.jsonl"));
}

TEST_F(TaskFilesOfAFolder, ThatAreMissingAreNamed) {
  make("dev/a_dev.csv");
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { find_task_files(task_, folder_.path()); }),
      HasSubstr("no file of mmlu in it; wanted .jsonl, .json or .csv files of a split (test)"));
  make("test.arrow");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { find_task_files(task_, folder_ / "test.arrow"); }),
              HasSubstr("wanted a .jsonl, .json, .csv, .tsv, .txt or .parquet file"));
}

TEST_F(TaskFilesOfAFolder, AreInTheLastPathThatHoldsTheName) {
  make("old_boolq/validation.jsonl");
  make("boolq/validation.jsonl");
  make("other/gsm8k_test.jsonl");
  const std::vector<std::string> given = {
      (folder_ / "old_boolq").string(), (folder_ / "boolq").string(), (folder_ / "other").string()};
  EXPECT_EQ(task_data_path("boolq", given), folder_ / "boolq");
  EXPECT_EQ(task_data_path("gsm8k", given), folder_ / "other/gsm8k_test.jsonl");
  make("mmlu/test.csv");
  make("cmmlu/test.csv");
  EXPECT_EQ(task_data_path("mmlu", {(folder_ / "mmlu").string(), (folder_ / "cmmlu").string()}),
            folder_ / "mmlu");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("mmlu", given); }),
              HasSubstr("holds the name \"mmlu\""));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("mmlu", {"/no/such/path"}); }),
              HasSubstr("/no/such/path does not exist"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("mmlu", {}); }),
              HasSubstr("--task-data-path: not given"));
  const TaskFlags flags = {.tasks = "--eval-tasks", .paths = "--eval-tasks-data-path"};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("mmlu", given, flags); }),
              AllOf(HasSubstr("--eval-tasks-data-path: none of "), HasSubstr("each --eval-tasks")));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("mmlu", {"/no/such/path"}, flags); }),
              HasSubstr("--eval-tasks-data-path: /no/such/path does not exist"));
}

TEST_F(TaskFilesOfAFolder, AreNotThoseOfAnotherTaskInAFolderOfSeveral) {
  make("ceval/val/law_val.csv");
  make("hellaswag_val.jsonl");
  const std::vector<std::string> given = {folder_.path().string()};
  EXPECT_EQ(task_data_path("ceval", given), folder_ / "ceval");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { task_data_path("piqa", given); }),
              HasSubstr("has files of ceval, hellaswag, but none of piqa"));
}

}  // namespace
}  // namespace piton
