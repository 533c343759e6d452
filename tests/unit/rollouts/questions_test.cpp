#include "rollouts/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

using testing::HasSubstr;

class KeptWarnings final : public Log {
 public:
  void write(LogLevel level, std::string_view line) override {
    if (level == LogLevel::kWarning) lines.emplace_back(line);
  }
  std::vector<std::string> lines;
};

struct QuestionFile {
  explicit QuestionFile(const std::string& text) {
    path = (folder / "questions.jsonl").string();
    std::ofstream(path) << text;
  }
  Questions read(bool needs_answer = false) {
    return Questions({path},
                     {.tokenizer = tokenizer,
                      .templates = {.templates = {{"default",
                                                   "{% for m in messages %}<{{ m.content }}>"
                                                   "{% endfor %}{% if add_generation_prompt %}"
                                                   "!{% endif %}",
                                                   "here"}}},
                      .ends = {256},
                      .longest = 8,
                      .needs_answer = needs_answer},
                     7, log);
  }
  TempFolder folder;
  std::string path;
  ByteTokenizer tokenizer;
  KeptWarnings log;
};

std::string text_of(const RolloutQuestion& question) {
  return {question.ids.begin(), question.ids.end()};
}

TEST(Questions, AreTextsAndConversationsWithoutTheLastAnswer) {
  QuestionFile file(
      "{\"prompt\": \"ab\", \"answer\": 1}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
      "\"content\": \"d\"}]}\n"
      "{\"prompt\": [{\"role\": \"user\", \"content\": \"e\"}]}\n");
  const Questions questions = file.read();
  ASSERT_EQ(questions.size(), 3);
  std::set<std::string> first;
  std::set<std::string> second;
  for (std::int64_t i = 0; i < 3; ++i) {
    first.insert(text_of(questions.at(i)));
    second.insert(text_of(questions.at(3 + i)));
  }
  EXPECT_THAT(first, testing::ElementsAre("<c>!", "<e>!", "ab"));
  EXPECT_EQ(second, first);
  EXPECT_THAT(file.log.lines, testing::IsEmpty());
  EXPECT_THAT(questions.identity(), HasSubstr("3 questions, "));
}

TEST(Questions, EachEpochHasAnOrderOfItsOwn) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += fmt::format("{{\"prompt\": \"{}\"}}\n", i);
  QuestionFile file(lines);
  const Questions questions = file.read();
  std::vector<std::string> orders[2];
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (std::int64_t i = 0; i < 40; ++i)
      orders[epoch].push_back(text_of(questions.at(40 * epoch + i)));
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_THAT(orders[0], testing::UnorderedElementsAreArray(orders[1]));
  std::set<std::string> another;
  int same = 0;
  for (int i = 0; i < 40; ++i) {
    another.insert(text_of(questions.at(i, 1)));
    same += text_of(questions.at(i, 1)) == orders[0][static_cast<std::size_t>(i)] ? 1 : 0;
  }
  EXPECT_EQ(another.size(), 40);  // each order has all questions
  EXPECT_LT(same, 10);
  EXPECT_EQ(text_of(questions.at(0)), orders[0][0]);  // after a later epoch
}

TEST(Questions, BadRecordsAreLeftOutByName) {
  QuestionFile file(
      "{\"prompt\": \"ab\", \"answer\": \"1\"}\n"
      "{\"prompt\": \"123456789\", \"answer\": \"1\"}\n"
      "{\"text\": \"ab\", \"answer\": \"1\"}\n"
      "{\"prompt\": \"cd\"}\n"
      "{\"prompt\": 5, \"answer\": \"1\"}\n");
  EXPECT_EQ(file.read(true).size(), 1);
  ASSERT_EQ(file.log.lines.size(), 4);
  EXPECT_THAT(file.log.lines[0],
              HasSubstr("line 2 (byte 32): the question has 9 tokens, wanted 1 to 8"));
  EXPECT_THAT(file.log.lines[1], HasSubstr("got neither of the two, wanted \"messages\" or"));
  EXPECT_THAT(file.log.lines[2], HasSubstr("line 4"));
  EXPECT_THAT(file.log.lines[2], HasSubstr("it has no \"answer\""));
  EXPECT_THAT(file.log.lines[3], HasSubstr("4 records of 5 are left out"));
  QuestionFile chats("{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] {
                           Questions({chats.path}, {.tokenizer = chats.tokenizer, .longest = 8}, 7,
                                     chats.log);
                         }),
              HasSubstr("records are conversations, and the model has no chat template"));
  QuestionFile none("{\"text\": \"ab\"}\n");
  EXPECT_THAT(message_of(Fault::kData, [&] { none.read(); }), HasSubstr("no question, wanted"));
}

}  // namespace
}  // namespace piton
