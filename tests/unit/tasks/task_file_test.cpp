#include "tasks/task_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tasks/task_samples.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TaskInAFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    write_text_file(folder_ / "colors.toml", text);
    return folder_ / "colors.toml";
  }
  std::string refusal(const std::string& text) {
    const auto file = write(text);
    return message_of(Fault::kUsage, [&] { read_task_file(file, Protocol::kLmEval); });
  }
  TempFolder folder_;
};

TEST_F(TaskInAFile, IsReadAsABuiltInTask) {
  const auto file = write(
      "prompt = \"Q: {question}\\nA:\"\nchoices = [\"{a}\", \"{b}\"]\nanswer = \"{right}\"\n"
      "answer-labels = [\"a\", \"b\"]\nnum_shots = 1\nmetrics = [\"acc\", \"acc_bytes\"]\n");
  write_text_file(folder_ / "colors/test.csv", "question,a,b,right\nsky?,blue,red,a\n");
  write_text_file(folder_ / "colors/train.csv", "question,a,b,right\nsnow?,black,white,b\n");
  const TaskData data =
      load_task(find_task(file.string(), {}), {.paths = {(folder_ / "colors").string()}});
  EXPECT_EQ(data.task.name, "colors");
  EXPECT_EQ(data.samples[0].contexts[0], "Q: snow?\nA: white\n\nQ: sky?\nA:");
  EXPECT_THAT(data.samples[0].continuations, ElementsAre(" blue", " red"));
  EXPECT_THAT(data.samples[0].gold, ElementsAre(0));
}

TEST_F(TaskInAFile, OfPreferencesHasThePairsOfTheRecords) {
  const auto file = write(
      "kind = \"preference\"\nprompt = \"{question}\"\nchosen = \"{good}\"\n"
      "rejected = \"{bad}\"\nsubject-field = \"part\"\n");
  // The text of an answer may be that of a number, which elsewhere names a choice.
  write_text_file(folder_ / "colors/test.csv",
                  "question,good,bad,part\nsky?,blue,0,one\nsnow?,1,red,\nsea?,blue,red,one\n");
  const Task task = find_task(file.string(), {});
  const TaskData data = load_task(task, {.paths = {(folder_ / "colors").string()}});
  ASSERT_EQ(data.samples.size(), 3U);
  EXPECT_THAT(data.samples[0].asked, ElementsAre("sky?"));
  EXPECT_THAT(data.samples[0].choices, ElementsAre("blue", "0"));
  EXPECT_THAT(data.samples[1].choices, ElementsAre("1", "red"));
  for (const TaskSample& sample : data.samples) EXPECT_THAT(sample.gold, ElementsAre(0));
  EXPECT_EQ(data.samples[0].subject, "one");
  EXPECT_EQ(data.samples[1].subject, "");
  // The first of each subject.
  const TaskData first =
      load_task(task, {.paths = {(folder_ / "colors").string()}, .max_samples = 1});
  ASSERT_EQ(first.samples.size(), 2U);
  EXPECT_EQ(first.samples[1].index, 1);
}

TEST_F(TaskInAFile, IsRefusedWithWhatIsWrong) {
  EXPECT_THAT(refusal("prompt = \"x\"\nchosen = \"{a}\"\n"),
              HasSubstr("chosen: is for kind = \"preference\", and kind is \"multiple-choice\""));
  EXPECT_THAT(refusal("kind = \"preference\"\nnum-shots = 1\n"), HasSubstr("has no examples"));
  EXPECT_THAT(refusal("kind = \"preference\"\nchoices = [\"a\"]\n"),
              HasSubstr("are for kind = \"multiple-choice\""));
  EXPECT_THAT(refusal("kind = \"preference\"\nsubject-field = \"a\"\nhas-subjects = true\n"),
              HasSubstr("subject-field: got has-subjects too"));
  EXPECT_THAT(refusal("prompts = \"x\"\n"), HasSubstr("prompts"));
  EXPECT_THAT(refusal("name = \"x\"\n"), HasSubstr("colors.toml: prompt: is missing"));
  EXPECT_THAT(refusal("prompt = \"x\"\n"), HasSubstr("wanted either choices or choices-field"));
  EXPECT_THAT(refusal("prompt = \"x\"\nchoices = [\"a\"]\n"), HasSubstr("answer: is missing"));
  EXPECT_THAT(refusal("prompt = \"x\"\nchoices = [\"a\"]\nanswer = \"{b}\"\nmetrics = [\"f1\"]\n"),
              HasSubstr("metrics: got \"f1\", wanted one of acc, acc_norm, acc_bytes"));
  EXPECT_THAT(
      refusal("prompt = \"x\"\nkind = \"generation\"\nanswer = \"{a}\"\nchoices = [\"a\"]\n"),
      HasSubstr("are for kind = \"multiple-choice\""));
}

TEST(TaskTable, NamesTheTasksThatExist) {
  // Names of lm-eval that are variants of a task.
  for (const auto& [given, task] :
       std::vector<std::pair<std::string, std::string>>{{"lambada_openai", "lambada"},
                                                        {"gsm8k_cot", "gsm8k"},
                                                        {"mmlu_anatomy", "mmlu"},
                                                        {"arc_challenge_chat", "arc_challenge"},
                                                        {"bbh-cot", "bbh"}}) {
    EXPECT_THAT(
        message_of(Fault::kUsage, [&] { find_task(given, {}); }),
        HasSubstr("--task: got \"" + given + "\", did you mean " + task + "?; wanted one "));
  }
  EXPECT_THAT(message_of(Fault::kUsage, [&] { find_task("mmluanatomy", {}); }),
              testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(message_of(Fault::kUsage, [] { find_task("hellaswg", {}); }),
              HasSubstr("did you mean hellaswag?; wanted one of agieval, agieval_cloze"));
  EXPECT_THAT(
      message_of(Fault::kUsage, [] { find_task("hellaswag", {.protocol = Protocol::kMindSpeed}); }),
      HasSubstr("--task: hellaswag is a task of --protocol lm-eval, and --protocol is mindspeed"));
  const TaskChoice training = {.flags = {.tasks = "--eval-tasks", .protocol = ""}};
  EXPECT_THAT(message_of(Fault::kUsage, [&] { find_task("hellaswg", training); }),
              HasSubstr("--eval-tasks: got \"hellaswg\", did you mean hellaswag?"));
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { find_task("needlebench", training); }),
      HasSubstr("--eval-tasks: needlebench is a task of --protocol mindspeed of piton eval, "
                "and the protocol here is lm-eval"));
}

}  // namespace
}  // namespace piton
