#include "tasks/task_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using Columns = std::vector<std::string>;

class TaskRecords : public testing::Test {
 protected:
  std::vector<Json> read(const std::string& name, const std::string& text,
                         const Columns& columns = {}) {
    write_text_file(folder_ / name, text);
    return read_task_records(folder_ / name, columns);
  }
  TempFolder folder_;
};

TEST_F(TaskRecords, OfCsvAreTextEvenWhereTheyLookLikeNothing) {
  const Columns columns = {"question", "A", "B", "answer"};
  const auto rows =
      read("a_test.csv", "\"Which, \"\"one\"\"?\nNow\",None,NA,B\r\nx,1,null,A\n", columns);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(
      rows[0],
      Json({{"question", "Which, \"one\"?\nNow"}, {"A", "None"}, {"B", "NA"}, {"answer", "B"}}));
  EXPECT_EQ(rows[1]["B"], "null");
}

TEST_F(TaskRecords, OfCsvMayHaveAHeader) {
  const Columns columns = {"question", "A", "answer"};
  const auto rows = read("b.csv", "\xEF\xBB\xBFid,Question,A,Answer\n0,why,1,A\n", columns);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rendered("{question}{answer}", rows[0], "b"), "whyA");
}

TEST_F(TaskRecords, OfJsonAreLinesOrALists) {
  EXPECT_EQ(read("a.jsonl", "{\"a\": 1}\n\n{\"a\": 2}").size(), 2U);
  EXPECT_EQ(read("b.json", "[{\"a\": 1}, {\"a\": 2}]").size(), 2U);
  EXPECT_EQ(read("c.json", "{\"canary\": \"x\", \"examples\": [{\"a\": 1}]}").size(), 1U);
  EXPECT_EQ(read("d.json", "{\"a\": 1}\n{\"a\": 2}\n").size(), 2U);
  EXPECT_EQ(read("e.txt", "text\n")[0]["text"], "text\n");
}

TEST_F(TaskRecords, ThatCannotBeReadAreNamed) {
  EXPECT_THAT(message_of(Fault::kData, [&] { read("a.jsonl", "{}\n[1]\n"); }),
              HasSubstr("a.jsonl: line 2: got array, wanted a JSON object"));
  EXPECT_THAT(message_of(Fault::kData, [&] { read("b.csv", "x,y\n1,2,3\n"); }),
              HasSubstr("b.csv: line 2: got 3 columns, wanted 2: x, y"));
  EXPECT_THAT(message_of(Fault::kData, [&] { read("c.json", "3"); }),
              HasSubstr("c.json: got number, wanted a JSON list"));
}

TEST(Rendered, PutsFieldsIntoText) {
  const Json fields = {{"q", " a "},         {"n", 3},
                       {"yes", true},        {"none", nullptr},
                       {"list", {"x", "y"}}, {"choices", {{"text", {"u", "v"}}}}};
  EXPECT_EQ(rendered("{q|strip}.{q|lstrip}{n}{yes}{none}", fields, "here"), "a.a 3true");
  EXPECT_EQ(rendered("{list.1}{choices.text.0}{{}}", fields, "here"), "yu{}");
  EXPECT_THAT(message_of(Fault::kData, [&] { rendered("{other}", fields, "here"); }),
              HasSubstr("here: has no field \"other\"; it has choices, list"));
  EXPECT_THAT(message_of(Fault::kData, [&] { rendered("{list.2}", fields, "here"); }),
              HasSubstr("has no field \"list.2\""));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { rendered("{q", fields, "here"); }),
              HasSubstr("a brace is not closed"));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { rendered("{q|upper}", fields, "here"); }),
              HasSubstr("wanted strip or lstrip"));
}

}  // namespace
}  // namespace piton
