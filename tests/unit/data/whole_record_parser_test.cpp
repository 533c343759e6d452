#include "data/records/whole_record_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "base/json.h"
#include "base/nesting.h"
#include "data/records/block_reader.h"
#include "data/records/input_files.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using OrderedJson = nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  Parsed parsed;
  OrderedJson record;
  std::string reason;
};

// Of each line.
std::vector<Outcome> parse(const std::vector<std::string>& lines) {
  const TempFolder folder;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  write_text_file(folder / "a.jsonl", text);
  BlockReader reader(find_input_files({folder / "a.jsonl"}, {}), {}, {});
  std::vector<Outcome> outcomes;
  while (auto block = reader.next()) {
    const auto parser = make_whole_record_parser(*block->file, SampleBy::kLine);
    for (std::size_t i = 0; i < block->ends.size(); ++i) {
      Outcome outcome;
      outcome.parsed = parser->parse(*block, i, outcome.record, outcome.reason);
      if (outcome.parsed != Parsed::kNothing) outcomes.push_back(std::move(outcome));
    }
  }
  return outcomes;
}

TEST(WholeRecordParser, ReadsWhatNlohmannReads) {
  const std::vector<std::string> lines = {
      R"({"b": "x", "a": [1, -1, 0, -0, 1.0, -0.0, 1e3, 0.1, 1e-320], "c": {"z": null, "y": true}})",
      R"({"most": 18446744073709551615, "least": -9223372036854775808, "next": 9223372036854775808})",
      R"({"text": "\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00 é😀\u0000", "": {}, "empty": []})",
      R"({"x": {"k": 1, "l": 2, "k": 3}, "false": false})"};
  const auto outcomes = parse(lines);
  ASSERT_EQ(outcomes.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ASSERT_EQ(outcomes[i].parsed, Parsed::kRecord) << outcomes[i].reason;
    const OrderedJson wanted = OrderedJson::parse(lines[i]);
    EXPECT_EQ(outcomes[i].record, wanted);
    EXPECT_EQ(outcomes[i].record.dump(), wanted.dump());
  }
  for (const char* name : {"most", "next"}) {
    EXPECT_TRUE(outcomes[1].record[name].is_number_unsigned()) << name;
  }
  EXPECT_TRUE(outcomes[0].record["a"][0].is_number_unsigned());
  EXPECT_FALSE(outcomes[0].record["a"][1].is_number_unsigned());
}

TEST(WholeRecordParser, RefusesWhatRecordsMayNotHave) {
  const auto nested = [](int levels) {
    const auto count = static_cast<std::size_t>(levels - 1);  // the object is one
    return "{\"a\": " + std::string(count, '[') + std::string(count, ']') + "}";
  };
  const auto outcomes = parse({nested(kMostLevels), nested(kMostLevels + 1), R"({"a": 1, "a": 2})",
                               R"({"a": 1e999})", R"({"a": 123456789012345678901})", "[1]"});
  ASSERT_EQ(outcomes.size(), 6U);
  EXPECT_EQ(outcomes[0].parsed, Parsed::kRecord) << outcomes[0].reason;
  for (std::size_t i = 1; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i].parsed, Parsed::kBad) << i;
  }
  EXPECT_EQ(outcomes[1].reason, "nested too deeply: got more than 64 levels");
  EXPECT_EQ(outcomes[2].reason, "key \"a\" appears twice");
  EXPECT_THAT(outcomes[3].reason, StartsWith("not JSON: "));
  EXPECT_THAT(outcomes[4].reason, StartsWith("not JSON: "));
  EXPECT_THAT(outcomes[5].reason, HasSubstr("not an object"));
}

}  // namespace
}  // namespace piton
