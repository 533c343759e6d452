// Instructions of IFEval against lm-evaluation-harness (tools/oracle/evaluation_instructions.py).
#include "tasks/answers/instructions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/files/files.h"
#include "support/errors.h"

namespace piton {
namespace {

using Json = nlohmann::json;

TEST(Instructions, HaveTheVerdictsOfLmEvaluationHarness) {
  std::istringstream lines(read_text_file(std::filesystem::path(PITON_SOURCE_DIR) /
                                          "tests/golden/evaluation/instructions.jsonl"));
  std::map<std::pair<std::string, bool>, int> seen;
  for (std::string line; std::getline(lines, line);) {
    const auto golden = read_json<Json>(line);
    const auto instructions = read_instructions(golden, "record");
    for (const bool loosely : {false, true}) {
      const auto wanted = golden[loosely ? "loose" : "strict"].get<std::vector<bool>>();
      const auto found = followed(instructions, golden["answer"].get<std::string>(), loosely);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_EQ(found[i], wanted[i])
            << instructions[i].id << (loosely ? " loosely " : " ") << line;
        ++seen[{instructions[i].id, wanted[i]}];
      }
    }
  }
  EXPECT_EQ(seen.size(), 42U);  // each of 21 instructions is followed, and is not
}

TEST(Instructions, AreNotCheckedWhereAModelOrChanceDecides) {
  const auto is_checked = [](const char* id, const Json& arguments) {
    const Json record{{"instruction_id_list", {id}}, {"kwargs", Json::array({arguments})}};
    return read_instructions(record, "record").front().is_checked();
  };
  EXPECT_FALSE(is_checked("language:response_language", {{"language", "de"}}));
  EXPECT_FALSE(is_checked("change_case:english_capital", Json::object()));
  EXPECT_FALSE(is_checked("change_case:english_lowercase", Json::object()));
  EXPECT_FALSE(is_checked("length_constraints:number_sentences", {{"num_sentences", 3}}));
  Json letter{{"letter", "!"}, {"let_frequency", 3}, {"let_relation", "at least"}};
  EXPECT_FALSE(is_checked("keywords:letter_frequency", letter));
  letter["letter"] = "X";
  EXPECT_TRUE(is_checked("keywords:letter_frequency", letter));
  EXPECT_FALSE(is_checked("length_constraints:nth_paragraph_first_word",
                          {{"num_paragraphs", 2}, {"nth_paragraph", 3}, {"first_word", "a"}}));
}

TEST(Instructions, NameWhatIsWrongInARecord) {
  const auto refusal = [](const Json& ids, const Json& arguments) {
    return message_of(Fault::kData, [&] {
      read_instructions({{"instruction_id_list", ids}, {"kwargs", arguments}}, "line 3");
    });
  };
  const Json none = Json::array({Json::object()});
  EXPECT_THAT(refusal({"startend:middle"}, none),
              testing::HasSubstr("line 3: \"startend:middle\" is no instruction of IFEval"));
  EXPECT_THAT(refusal({"startend:quotation", "startend:quotation"}, none),
              testing::HasSubstr("got 1 of kwargs for 2 instructions, wanted one for each"));
  EXPECT_THAT(
      refusal({"keywords:existence"}, none),
      testing::HasSubstr("keywords:existence: keywords is missing, wanted a list of texts"));
  EXPECT_THAT(refusal({"keywords:existence"}, {{{"keywords", {"(a"}}}}),
              testing::HasSubstr("line 3: keywords:existence: "));
  EXPECT_THAT(
      refusal({"length_constraints:number_words"}, {{{"num_words", 3}, {"relation", "around"}}}),
      testing::HasSubstr("relation is \"around\", wanted \"less than\" or \"at least\""));
  EXPECT_THAT(refusal({"detectable_format:number_bullet_lists"}, {{{"num_bullets", "x"}}}),
              testing::HasSubstr("num_bullets is \"x\", wanted a number above 0"));
}

}  // namespace
}  // namespace piton
