#include "evaluate/answer_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

const JournalKey kKey{.facts = {{"task", "t"}}, .probe = -12.5};

TEST(AnswerJournal, GivesBackWhatItWasGiven) {
  const TempFolder folder;
  const auto path = folder / "t.journal";
  {
    AnswerJournal journal(path, kKey, true);
    EXPECT_TRUE(journal.answers().empty());
    journal.add({{3, {.log_likelihood = -1.25, .greedy = true}}});
    journal.add({{1, {.text = "a \"b\"\n"}}, {2, {}}});
  }
  const AnswerJournal again(path, {.facts = kKey.facts, .probe = -12.5001}, true);
  ASSERT_EQ(again.answers().size(), 3U);
  EXPECT_EQ(again.answers().at(3).log_likelihood, -1.25);
  EXPECT_TRUE(again.answers().at(3).greedy);
  EXPECT_EQ(again.answers().at(1).text, "a \"b\"\n");
  EXPECT_EQ(again.answers().at(2).text, "");
}

TEST(AnswerJournal, DropsALineThatWasCutOff) {
  const TempFolder folder;
  const auto path = folder / "t.journal";
  AnswerJournal(path, kKey, true).add({{0, {.log_likelihood = -1}}, {1, {.log_likelihood = -2}}});
  const std::string text = read_text_file(path);
  write_text_file(path, std::string_view(text).substr(0, text.size() - 3));
  AnswerJournal again(path, kKey, true);
  EXPECT_EQ(again.answers().size(), 1U);
  again.add({{1, {.log_likelihood = -2}}});
  EXPECT_EQ(AnswerJournal(path, kKey, true).answers().size(), 2U);
}

TEST(AnswerJournal, OfAnotherModelOrTaskIsRefused) {
  const TempFolder folder;
  const auto path = folder / "t.journal";
  AnswerJournal(path, kKey, true);
  for (const JournalKey& other : {JournalKey{.facts = {{"task", "u"}}, .probe = -12.5},
                                  JournalKey{.facts = kKey.facts, .probe = -12.6}}) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { AnswerJournal(path, other, true); }),
                HasSubstr("t.journal: holds answers of another evaluation"));
  }
}

TEST(AnswerJournal, IsWrittenByOneRank) {
  const TempFolder folder;
  AnswerJournal journal(folder / "t.journal", kKey, false);
  journal.add({{0, {}}});
  EXPECT_FALSE(std::filesystem::exists(folder / "t.journal"));
}

}  // namespace
}  // namespace piton
