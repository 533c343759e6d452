#include "serve/written_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_options.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

struct Parts {
  std::vector<std::string> parts;
  std::string text;
  FinishReason reason;
};

Parts write(std::string_view bytes, std::vector<std::string> stop, bool ends) {
  const ByteTokenizer tokenizer;
  const std::vector<std::int32_t> prompt = {'p'};
  WrittenText text(tokenizer, prompt, std::move(stop), {ByteTokenizer::kEndOfDocument});
  Parts result;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool last = i + 1 == bytes.size() && !ends;
    const std::int32_t id = static_cast<std::uint8_t>(bytes[i]);
    result.parts.push_back(
        text.push({{id, -1}, {}}, last ? FinishReason::kLength : FinishReason::kNone));
  }
  if (ends) {
    result.parts.push_back(
        text.push({{ByteTokenizer::kEndOfDocument, -1}, {}}, FinishReason::kStop));
  }
  result.text = text.text();
  result.reason = text.reason();
  return result;
}

TEST(WrittenText, IsNeverCutInsideACharacter) {
  const Parts written = write("aé𝄞z", {}, true);
  EXPECT_EQ(written.text, "aé𝄞z");
  EXPECT_EQ(written.reason, FinishReason::kStop);
  for (const std::string& part : written.parts) EXPECT_EQ(valid_utf8_prefix(part), part.size());
  EXPECT_EQ(write("a\xC3", {}, false).text, "a\uFFFD");
  EXPECT_EQ(write("a\xC3", {}, false).reason, FinishReason::kLength);
}

// The text of single bytes is known with the token after them.
TEST(WrittenText, HasItsTokensWhereTheyBegin) {
  const auto tokenizer = open_tokenizer(
      {.name_or_path = PITON_SOURCE_DIR "/tests/golden/evaluation/stories_tokenizer.json"});
  const std::vector<std::int32_t> ids = tokenizer->encode("naïve you");
  ASSERT_EQ(ids.size(), 6U);  // n a 0xC3 0xAF ve you
  const PromptText prompt = prompt_text(*tokenizer, ids);
  EXPECT_EQ(prompt.text, "naïve you");
  EXPECT_THAT(prompt.offsets, testing::ElementsAre(0, 1, 2, 2, 3, 5));
  WrittenText text(*tokenizer, {}, {}, {2});
  for (std::size_t i = 0; i < 4; ++i) text.push({{ids[i], -1}, {}}, FinishReason::kNone);
  text.push({{2, -1}, {}}, FinishReason::kStop);
  EXPECT_EQ(text.text(), "naï");
  EXPECT_THAT(text.offsets(), testing::ElementsAre(0, 1, 2, 2, 3));
}

// A begun character that does not continue is U+FFFD, which comes with the next token.
TEST(WrittenText, HasItsTokensBehindBytesThatAreNoCharacters) {
  const ByteTokenizer tokenizer;
  WrittenText text(tokenizer, {}, {}, {ByteTokenizer::kEndOfDocument});
  for (const unsigned char byte : std::string_view("\xE4V\xC3\xE4\xBD\xA0\x80x\xF0\x9F"))
    text.push({{byte, -1}, {}}, FinishReason::kNone);
  text.push({{'y', -1}, {}}, FinishReason::kLength);
  EXPECT_EQ(text.text(), "\uFFFDV\uFFFD你\uFFFDx\uFFFDy");
  EXPECT_THAT(text.offsets(), testing::ElementsAre(0, 1, 2, 3, 3, 3, 4, 5, 6, 6, 7));
}

TEST(WrittenText, EndsBeforeAStopWordAndLeaksNoPartOfOne) {
  const Parts written = write("one STOP two", {"STOP"}, true);
  EXPECT_EQ(written.text, "one ");
  EXPECT_EQ(written.reason, FinishReason::kStop);
  std::string streamed;
  for (const std::string& part : written.parts) streamed += part;
  EXPECT_EQ(streamed, "one ");
  EXPECT_EQ(write("one STO", {"STOP"}, true).text, "one STO");
  EXPECT_EQ(write("aéb", {"é"}, false).text, "a");
}

}  // namespace
}  // namespace piton
