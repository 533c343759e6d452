// The labels that records have, where no option names them.
#include "data/labels/found_labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of a record for each of `labels`, which are JSON.
FoundLabels labels_in(const std::vector<std::string>& labels, bool several = false) {
  TempFolder folder;
  SilentLog log;
  std::string text;
  for (const std::string& label : labels)
    text += fmt::format("{{\"text\": \"a\", \"label\": {}}}\n", label);
  const std::string file = (folder / "texts.jsonl").string();
  write_text_file(file, text);
  return labels_of_records({file}, "", several, log);
}

std::string refusal(const std::vector<std::string>& labels, bool several = false) {
  return message_of(Fault::kData, [&] { labels_in(labels, several); });
}

TEST(FoundLabels, AreSortedWhateverTheOrderOfRecordsIs) {
  const FoundLabels found = labels_in({R"("so so")", R"("glad")", R"("sad")", R"("glad")"});
  EXPECT_THAT(found.names, ElementsAre("glad", "sad", "so so"));
  EXPECT_EQ(found.count, 3);
  EXPECT_EQ(labels_in({R"("sad")", R"("glad")", R"("so so")"}).names, found.names);
}

TEST(FoundLabels, AreNumbersWhereTheyAreAllFromZeroOn) {
  const FoundLabels found = labels_in({"2", "0", "1.0", "2"});
  EXPECT_THAT(found.names, IsEmpty());
  EXPECT_EQ(found.count, 3);
  EXPECT_THAT(labels_in({"10", "9", "1"}).names, ElementsAre("1", "9", "10"));
  EXPECT_THAT(labels_in({"0", "2"}).names, ElementsAre("0", "2"));
  EXPECT_THAT(labels_in({R"("01")", "0"}).names, ElementsAre("0", "01"));
  EXPECT_THAT(labels_in({R"("ten")", "9"}).names, ElementsAre("9", "ten"));
}

TEST(FoundLabels, OfListsAreThoseOfAllTexts) {
  EXPECT_THAT(labels_in({"[]", R"(["b", "a"])", R"("c")"}, true).names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(labels_in({"[0]", "[]"}, true).count, 1);
  EXPECT_THAT(refusal({"[]", "[]"}, true), HasSubstr("no text has a label"));
}

TEST(FoundLabels, RefuseWhatIsNoSetOfLabels) {
  EXPECT_THAT(refusal({R"("a")", R"("a")"}), HasSubstr("all texts have the label \"a\""));
  EXPECT_THAT(refusal({"1.5", "2"}),
              HasSubstr("the label is 1.5; --problem-type regression learns numbers"));
  EXPECT_THAT(refusal({R"("a")", R"("")"}), HasSubstr("texts.jsonl: line 2"));
  EXPECT_THAT(refusal({"null"}), HasSubstr("no label: wanted"));
}

}  // namespace
}  // namespace piton
