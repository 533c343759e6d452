// needlebench of MindSpeed-LLM: tests/golden/evaluation/needlebench.jsonl, made by
// tools/oracle/evaluation_needlebench.py.
#include "tasks/needlebench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>

#include "base/files/files.h"
#include "base/json.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "tasks/task_table.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kNeedleGolden = PITON_SOURCE_DIR "/tests/golden/evaluation";
const std::string kNeedleData = kNeedleGolden + "/mindspeed/needlebench";

std::vector<nlohmann::json> needle_records(const char* key) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_text_file(kNeedleGolden + "/needlebench.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    auto record = read_json<nlohmann::json>(line);
    if (record.contains(key)) records.push_back(std::move(record));
  }
  EXPECT_FALSE(records.empty());
  return records;
}

std::unique_ptr<Tokenizer> stories_tokenizer() {
  TokenizerOptions options;
  options.name_or_path = kNeedleGolden + "/stories_tokenizer.json";
  return open_tokenizer(options);
}

Task needle_task() { return find_task("needlebench", {.protocol = Protocol::kMindSpeed}); }

// The folder with a file of ranks in addition.
void add_ranks(const TempFolder& folder) {
  for (const auto& file : fs::directory_iterator(kNeedleData))
    fs::copy(file.path(), folder.path() / file.path().filename());
  write_text_file(folder / "cl100k_base.tiktoken",
                  needle_records("ranks").front()["ranks"].get<std::string>());
}

TEST(Needlebench, HasThePromptsOfMindSpeed) {
  const TempFolder with_ranks;
  add_ranks(with_ranks);
  const auto stories = stories_tokenizer();
  for (const auto& golden : needle_records("buffer")) {
    const bool few = golden["tokenizer"] == "few";
    SCOPED_TRACE(golden["language"].dump() + golden["tokenizer"].dump());
    TaskData data = load_task(needle_task(),
                              {.paths = {few ? with_ranks.path().string() : kNeedleData},
                               .needles = {.lengths = golden["lengths"],
                                           .depths = golden["depths"],
                                           .repeats = golden["repeats"],
                                           .buffer = golden["buffer"].get<std::int64_t>(),
                                           .languages = {golden["language"].get<std::string>()}}});
    EXPECT_TRUE(data.samples.empty()) << "a tokenizer is needed";
    make_needle_samples(data, *stories, 512);
    ASSERT_EQ(data.samples.size(), golden["prompts"].size());
    for (std::size_t i = 0; i < data.samples.size(); ++i) {
      const auto& wanted = golden["prompts"][i];
      EXPECT_EQ(data.samples[i].subject, wanted[0].get<std::string>());
      EXPECT_EQ(data.samples[i].contexts, std::vector<std::string>{wanted[1]});
      EXPECT_EQ(data.samples[i].answer, wanted[2].get<std::string>());
      EXPECT_EQ(data.samples[i].keyword, wanted[3].get<std::string>());
    }
    EXPECT_EQ(data.task.variant,
              few ? "texts cut by cl100k_base" : "texts cut by the model's tokenizer");
  }
}

TEST(Needlebench, HasTheLengthsAndDepthsOfMindSpeedForTheModel) {
  const auto stories = stories_tokenizer();
  for (const auto& golden : needle_records("thousands")) {
    const std::int64_t longest = golden["thousands"].get<std::int64_t>() * 1024;
    TaskData data = load_task(needle_task(), {.paths = {kNeedleData}});
    make_needle_samples(data, *stories, longest);
    EXPECT_EQ(std::ssize(data.samples), golden["count"]);
    std::set<std::string> subjects;
    for (const TaskSample& sample : data.samples) subjects.insert(sample.subject);
    EXPECT_EQ(std::vector<std::string>(subjects.begin(), subjects.end()),
              golden["subjects"].get<std::vector<std::string>>());
    EXPECT_EQ(data.prompt_hash, golden["hash"].get<std::string>());
  }
}

TEST(Needlebench, AsksTheFirstOfEachLengthAndDepth) {
  const auto stories = stories_tokenizer();
  const NeedleOptions needles{.lengths = {80}, .depths = {0, 50}, .languages = {"en"}};
  const auto count = [&](TaskDataOptions options) {
    options.paths = {kNeedleData};
    options.needles = needles;
    TaskData data = load_task(needle_task(), options);
    make_needle_samples(data, *stories, 512);
    return data.samples.size();
  };
  EXPECT_EQ(count({}), 20U);
  EXPECT_EQ(count({.max_samples = 3}), 6U);
  EXPECT_EQ(count({.max_samples = 30}), 20U);
  EXPECT_EQ(count({.sample_share = 0.25}), 6U);
}

TEST(Needlebench, ScoresAsMindSpeed) {
  const auto golden = needle_records("scores").front();
  for (const auto& [text, score] :
       golden["scores"].get<std::vector<std::pair<std::string, double>>>())
    EXPECT_DOUBLE_EQ(needle_score(text, golden["needle"].get<std::string>(),
                                  golden["keyword"].get<std::string>()),
                     score)
        << text;
}

TEST(Needlebench, NamesWhatIsWrong) {
  const TempFolder folder;
  const auto load = [&](NeedleOptions needles = {}) {
    return [&, needles] {
      load_task(needle_task(), {.paths = {folder.path().string()}, .needles = needles});
    };
  };
  EXPECT_THAT(message_of(Fault::kUsage, load()),
              HasSubstr("needles.jsonl is not in it; wanted needles.jsonl, and "));
  const std::string needle =
      "{\"language\": \"English\", \"needle\": \"n\", \"retrieval_question\": \"q?\", ";
  write_text_file(folder / "needles.jsonl", needle + "\"arg1\": \"k\"}");
  EXPECT_THAT(message_of(Fault::kData, load()),
              HasSubstr("needles.jsonl: record 1: retrieval_question has no \"Please answer in the "
                        "format\"; got \"q?\""));
  const std::string asked =
      "{\"language\": \"English\", \"needle\": \"n\", \"retrieval_question\": \"q? Please answer "
      "in "
      "the format 'x'\", ";
  write_text_file(folder / "needles.jsonl", asked + "\"arg1\": \"k\"}");
  EXPECT_THAT(message_of(Fault::kData, load()), HasSubstr("wanted a text in the field \"arg2\""));
  write_text_file(folder / "needles.jsonl", asked + "\"arg2\": \"k\"}");
  EXPECT_THAT(message_of(Fault::kUsage, load()), HasSubstr("PaulGrahamEssays.jsonl is not in it"));
  write_text_file(folder / "PaulGrahamEssays.jsonl", "{\"text\": \"hay\"}");
  EXPECT_THAT(message_of(Fault::kData, load()),
              HasSubstr("needles.jsonl: has no needle in Chinese; wanted one, or another "
                        "--needle-languages"));
  load({.languages = {"en"}})();
  EXPECT_THAT(message_of(Fault::kUsage, load({.languages = {"fr"}})),
              HasSubstr("--needle-languages: got \"fr\", wanted en or zh"));
  EXPECT_THAT(message_of(Fault::kUsage, load({.depths = {101}})),
              HasSubstr("--needle-depths: got 101, wanted 0 to 100 (percent)"));
  EXPECT_THAT(message_of(Fault::kUsage, load({.lengths = {0}})),
              HasSubstr("--needle-lengths: got 0, wanted 1 to "));
  const auto stories = stories_tokenizer();
  TaskData data = load_task(needle_task(), {.paths = {kNeedleData}});
  EXPECT_THAT(message_of(Fault::kUsage, [&] { make_needle_samples(data, *stories, 2048); }),
              HasSubstr("--needle-lengths: not given, and needlebench has lengths for models that "
                        "read 4096, 8192, 32768, 131072, 204800, 262144, 524288, 1024000 tokens; "
                        "this one reads 2048; give the lengths, or --seq-length"));
}

// AGIEval is of the same file.
TEST(MindSpeedAgieval, HasItsPromptsAndReadsItsAnswers) {
  const Task task = find_task("agieval", {.protocol = Protocol::kMindSpeed});
  const TaskData data = load_task(task, {.paths = {kNeedleGolden + "/mindspeed"}});
  std::vector<TaskSample> samples = data.samples;
  for (const auto& golden : needle_records("agieval")) {
    for (const auto& wanted : golden["prompts"]) {
      ASSERT_FALSE(samples.empty());
      EXPECT_EQ(samples.front().subject, golden["agieval"].get<std::string>());
      EXPECT_EQ(samples.front().contexts, std::vector<std::string>{wanted[0]});
      EXPECT_EQ(samples.front().answer, wanted[1].get<std::string>());
      samples.erase(samples.begin());
    }
  }
  EXPECT_TRUE(samples.empty());
  const auto golden = needle_records("agieval_answers").front();
  for (const auto& one : golden["agieval_answers"])
    EXPECT_EQ(task.filters.front().extract(one[0].get<std::string>()), one[1].get<std::string>())
        << one[0];
}

}  // namespace
}  // namespace piton
