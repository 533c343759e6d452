#include "data/corpus/corpus_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

const CorpusCard kCard{.tokenizer_name = "byte",
                       .tokenizer_hash = "0123456789abcdef",
                       .vocabulary = 257,
                       .options = {{"append-eod", "true"}},
                       .documents = 2,
                       .tokens = 10,
                       .made_by = "0.1.0"};

TEST(CorpusCard, ReadsWhatWasWritten) {
  TempFolder folder;
  write_card(folder / "x", kCard);
  const auto card = read_card(folder / "x");
  ASSERT_TRUE(card.has_value());
  EXPECT_EQ(card->tokenizer_name, kCard.tokenizer_name);
  EXPECT_EQ(card->tokenizer_hash, kCard.tokenizer_hash);
  EXPECT_EQ(card->vocabulary, kCard.vocabulary);
  EXPECT_EQ(card->options, kCard.options);
  EXPECT_EQ(card->documents, kCard.documents);
  EXPECT_EQ(card->tokens, kCard.tokens);
  EXPECT_EQ(card->made_by, kCard.made_by);
}

TEST(CorpusCard, IsNotWhatElseBearsItsName) {
  TempFolder folder;
  EXPECT_FALSE(read_card(folder / "none"));
  for (const char* text : {"[1, 2]", "{\"text\": \"a record\"}", "no JSON", ""}) {
    write_text_file(folder / "x.json", text);
    EXPECT_FALSE(read_card(folder / "x")) << text;
  }
  write_text_file(folder / "x.json", "{\"piton\": \"0.1.0\", \"tokens\": 3}");
  EXPECT_THAT(message_of(Fault::kData, [&] { read_card(folder / "x"); }),
              HasSubstr("not a card that preprocess wrote"));
}

TEST(CorpusCard, IsCheckedAgainstTheRun) {
  TempFolder folder;
  write_card(folder / "x", kCard);
  EXPECT_EQ(check_card(folder / "x", 10, "byte", kCard.tokenizer_hash), "");
  EXPECT_EQ(check_card(folder / "x", 10, "", ""), "");  // a run of ids alone
  EXPECT_THAT(
      message_of(Fault::kData, [&] { check_card(folder / "x", 10, "byte-level BPE", "fedc"); }),
      HasSubstr("of the tokenizer byte (01234567), and the run has byte-level BPE (fedc)"));
  EXPECT_THAT(
      message_of(Fault::kData, [&] { check_card(folder / "x", 11, "byte", kCard.tokenizer_hash); }),
      HasSubstr("says 10 tokens"));
  EXPECT_THAT(check_card(folder / "y", 10, "byte", "01"), HasSubstr("nothing says"));
  EXPECT_EQ(check_card(folder / "y", 10, "", ""), "");
}

}  // namespace
}  // namespace piton
