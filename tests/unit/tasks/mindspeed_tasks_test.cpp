// The prompts of MindSpeed-LLM's MMLU: tests/golden/evaluation/mindspeed.jsonl, made by
// tools/oracle/evaluation_mindspeed.py.
#include "tasks/mindspeed_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tasks/chat_prompts.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

using testing::HasSubstr;

const std::string kEvaluationFiles = PITON_SOURCE_DIR "/tests/golden/evaluation";

std::vector<nlohmann::json> golden_records(const char* key) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_text_file(kEvaluationFiles + "/mindspeed.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    auto record = read_json<nlohmann::json>(line);
    if (record.contains(key)) records.push_back(std::move(record));
  }
  EXPECT_GT(records.size(), 1U);
  return records;
}

std::vector<TaskSample> samples_of(const TaskData& data, const std::string& subject) {
  std::vector<TaskSample> samples;
  for (const TaskSample& one : data.samples) {
    if (one.subject == subject) samples.push_back(one);
  }
  return samples;
}

TEST(MindSpeedMmlu, HasItsAlternativePrompt) {
  for (const auto& golden : golden_records("alternative")) {
    const Task task =
        find_task("mmlu", {.protocol = Protocol::kMindSpeed, .alternative_prompt = true});
    const TaskData data =
        load_task(task, {.paths = {kEvaluationFiles + "/data"}, .num_shots = golden["num_shots"]});
    const auto samples = samples_of(data, golden["alternative"]);
    ASSERT_EQ(samples.size(), golden["prompts"].size());
    for (std::size_t i = 0; i < samples.size(); ++i)
      EXPECT_EQ(samples[i].contexts.front(), golden["prompts"][i].get<std::string>());
    EXPECT_EQ(task.max_new_tokens, 128);
  }
}

TEST(MindSpeedMmlu, IsAConversationWithExamplesDrawnAsPandasDraws) {
  // Every message as ROLE{content}.
  const ChatTemplate plain(
      "{% for m in messages %}{{ m.role }}{{ '{' + m.content + '}' }}{% endfor %}", {}, "test");
  for (const auto& golden : golden_records("chat")) {
    const Task task = find_task("mmlu", {.protocol = Protocol::kMindSpeed,
                                         .chat_prompt = true,
                                         .chinese = golden["language"] == "zh"});
    TaskData data = load_task(task, {.paths = {kEvaluationFiles + "/data"},
                                     .num_shots = golden["num_shots"],
                                     .seed = golden["seed"].get<std::uint32_t>()});
    make_chat_prompts(data, plain, {.multiturn = true});
    const auto samples = samples_of(data, golden["chat"]);
    ASSERT_EQ(samples.size(), golden["conversations"].size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      std::string wanted;
      for (const auto& message : golden["conversations"][i])
        wanted += fmt::format("{}{{{}}}", message["role"].get<std::string>(),
                              message["content"].get<std::string>());
      EXPECT_EQ(samples[i].contexts.front(), wanted);
      EXPECT_EQ(samples[i].shots, golden["shots"].get<std::vector<std::int64_t>>());
    }
  }
}

TEST(MindSpeedMmlu, NeedsTheFilesOfItsExamples) {
  const TempFolder folder;
  write_text_file(folder / "mmlu/test/virology_test.csv", "q,1,2,3,4,A\n");
  for (const bool alternative : {false, true}) {
    const Task task = find_task("mmlu", {.protocol = Protocol::kMindSpeed,
                                         .alternative_prompt = alternative,
                                         .chat_prompt = !alternative});
    const auto load = [&](std::optional<std::int64_t> shots) {
      return
          [&, shots] { load_task(task, {.paths = {folder.path().string()}, .num_shots = shots}); };
    };
    EXPECT_THAT(message_of(Fault::kUsage, load({})),
                HasSubstr("wanted dev/virology_dev.csv there for 5 examples, or --num-shots 0"));
    load(0)();
  }
}

}  // namespace
}  // namespace piton
