#include "data/instruct/seed_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/errors.h"
#include "talks.h"
#include "text/chat/chat_template.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

std::vector<std::int32_t> learned(const TaughtText& sample) {
  std::vector<std::int32_t> ids;
  for (const std::int32_t label : sample.labels) {
    if (label != kIgnoredLabel) ids.push_back(label);
  }
  return ids;
}

TEST(SeedText, IsTheTemplateOfAscendSpeed) {
  const SeedText prompt = seed_text(talk({"a", "b", "c", "d"}), 4);
  EXPECT_EQ(prompt.text,
            "\nBelow is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request. Please "
            "note that you need to think through your response logically and step by step.\n"
            "### Instruction:\na\n### Response:\nb\n### Instruction:\nc\n### Response:\nd\n");
  EXPECT_EQ(prompt.text.substr(prompt.answer), "d\n");
}

TEST(SeedText, IsTheTextOfItsChatTemplate) {
  const ByteTokenizer bytes;
  const ChatTemplate chat(seed_chat_template(bytes), {}, "test");
  const auto message = [](const char* role, const char* content) {
    return nlohmann::ordered_json{{"role", role}, {"content", content}};
  };
  ChatInput input;
  input.messages = {message("user", "a"), message("assistant", "b"), message("user", "c"),
                    message("assistant", "d")};
  const std::string text = seed_text(talk({"a", "b", "c", "d"}), 4).text;
  const RenderedChat whole = chat.render_with_assistant(input);
  EXPECT_EQ(whole.text, text);
  ASSERT_EQ(whole.assistant.size(), 2U);
  EXPECT_EQ(text.substr(whole.assistant[1].begin), "d\n");
  input.messages.erase(3);
  EXPECT_EQ(chat.render(input, true).text + "d\n", text);
  input.messages.insert(input.messages.begin(), message("system", "Be kind."));
  EXPECT_TRUE(chat.render(input, true).text.starts_with("\nBe kind.\n### Instruction:\na\n"));
}

// Whatever the answer holds: the mark of answers, an empty line, characters of several tokens.
TEST(SeedPrompt, LearnsTheLastAnswerAndNothingElse) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(std::make_unique<ByteTokenizer>());
  for (const char* name : {"qwen2.5", "llama2"}) {
    TokenizerOptions options;
    options.name_or_path = shared_vocabularies() / name;
    if (!std::filesystem::exists(options.name_or_path)) continue;
    tokenizers.push_back(open_tokenizer(options));
    if (std::string(name) == "llama2") {
      options.not_use_fast = true;  // SentencePiece
      tokenizers.push_back(open_tokenizer(options));
    }
  }
  for (const auto& tokenizer : tokenizers) {
    for (const std::string answer :
         {"An answer.", "### Response:\nagain", "😀👍", "画蛇添足", "  two spaces", "x"}) {
      SCOPED_TRACE(tokenizer->name() + ": " + answer);
      const SeedPrompt prompt(*tokenizer, {});
      const auto samples = prompt.encode(talk({"q", "a", "q", answer}));
      ASSERT_EQ(samples.size(), 1U);
      EXPECT_EQ(samples[0].ids.size(), samples[0].labels.size());
      std::string text = tokenizer->decode(learned(samples[0]));
      // SentencePiece leaves out the space before the first id of a text.
      if (text.starts_with(' ') != answer.starts_with(' ')) text = " " + text;
      if (text.size() < answer.size() + 1) text = " " + text;
      EXPECT_EQ(text, answer + "\n");
    }
  }
}

// "e" and U+0301 are one character under NFC, so that places in the text are not those in the ids.
TEST(SeedPrompt, ATokenizerThatChangesTheTextLearnsTheSame) {
  TokenizerOptions options;
  options.name_or_path = shared_vocabularies() / "qwen2.5";
  if (!std::filesystem::exists(options.name_or_path)) GTEST_SKIP() << "no vocabularies";
  const auto tokenizer = open_tokenizer(options);
  const TaughtText sample =
      SeedPrompt(*tokenizer, {}).encode(talk({"cafe\xCC\x81", "the\xCC\x81"}))[0];
  EXPECT_EQ(tokenizer->decode(learned(sample)), "th\xC3\xA9\n");
}

TEST(SeedPrompt, EveryTurnIsASample) {
  const ByteTokenizer tokenizer;
  const SeedPrompt prompt(tokenizer, {.every_turn = true, .append_eod = true});
  const auto samples = prompt.encode(talk({"a", "b", "c", "d"}));
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(learned(samples[0]), (std::vector<std::int32_t>{'b', '\n', 256}));
  EXPECT_EQ(learned(samples[1]), (std::vector<std::int32_t>{'d', '\n', 256}));
}

TEST(SeedPrompt, CutsTheQuestionAndKeepsTheAnswer) {
  const ByteTokenizer tokenizer;
  const SeedPrompt prompt(tokenizer, {.lengths = {20}});
  const TaughtText sample = prompt.encode(talk({"a", "bcd"}))[0];
  EXPECT_EQ(sample.ids.size(), 20U);
  EXPECT_EQ(tokenizer.decode(learned(sample)), "bcd\n");
}

TEST(BaichuanPrompt, LearnsAllAnswersAndTheirEnds) {
  const ByteTokenizer tokenizer;
  const TaughtText sample = BaichuanPrompt(tokenizer, {}).encode(talk({"a", "b", "c", "d"}))[0];
  const std::int32_t no = kIgnoredLabel;
  EXPECT_EQ(sample.ids, (std::vector<std::int32_t>{195, 'a', 196, 'b', 195, 'c', 196, 'd', 256}));
  EXPECT_EQ(sample.labels, (std::vector<std::int32_t>{256, no, no, 'b', 256, no, no, 'd', 256}));
}

// Of the letter "a" only.
class OneLetter final : public Tokenizer {
 public:
  void encode(std::string_view, EncodeOptions, std::vector<std::int32_t>&) const override {}
  std::string decode(std::span<const std::int32_t>, DecodeOptions) const override { return ""; }
  std::string piece(std::int32_t) const override { return "a"; }
  std::optional<std::int32_t> id_of(std::string_view) const override { return {}; }
  std::int64_t vocabulary_size() const override { return 1; }
  bool is_special(std::int32_t) const override { return false; }
};

TEST(BaichuanPrompt, RefusesOtherTokenizers) {
  const OneLetter letter;
  EXPECT_THAT(message_of(Fault::kUsage, [&] { BaichuanPrompt(letter, {}); }),
              HasSubstr("writes Baichuan's ids 195 and 196 and its end-of-text token"));
}

}  // namespace
}  // namespace piton
