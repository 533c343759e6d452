#include "data/instruct/named_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "support/errors.h"
#include "talks.h"
#include "text/files/byte_tokenizer.h"
#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

NamedPrompt bytes_prompt(const std::string& name, NamedPromptRules rules = {}) {
  static const ByteTokenizer tokenizer;
  return {prompt_template(name, ""), tokenizer, rules};
}

TEST(NamedPrompt, LearnsEveryAnswerAndItsEnd) {
  const auto samples = bytes_prompt("default").encode(talk({"a", "bc", "d", "e"}));
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(byte_text(samples[0].ids), "Human: a\nAssistant:bc$\nHuman: d\nAssistant:e$");
  EXPECT_EQ(byte_text(samples[0].labels), "___________________bc$____________________e$");
}

TEST(NamedPrompt, WithEfficientEosTheNextTurnEndsAnAnswer) {
  PromptTemplate prompt = prompt_template("default", "");
  prompt.efficient_eos = true;
  prompt.assistant = parse_slots("{{content}}");
  const ByteTokenizer tokenizer;
  const auto samples = NamedPrompt(prompt, tokenizer, {}).encode(talk({"a", "bc", "d", "e"}));
  EXPECT_EQ(byte_text(samples[0].ids), "Human: a\nAssistant:bc\nHuman: d\nAssistant:e$");
  EXPECT_EQ(byte_text(samples[0].labels), "___________________bc$___________________e$");
}

TEST(NamedPrompt, AnswersThatAreNotTaughtHaveNoLabels) {
  Conversation conversation = talk({"a", "bc", "d", "e"});
  conversation.messages[1].taught = false;
  EXPECT_EQ(byte_text(bytes_prompt("default").encode(conversation)[0].labels),
            "__________________________________________e$");
  PromptTemplate prompt = prompt_template("default", "");
  prompt.efficient_eos = true;
  prompt.assistant = parse_slots("{{content}}");
  const ByteTokenizer tokenizer;
  const auto labels = [&] {
    const NamedPrompt with_eod(prompt, tokenizer, {.append_eod = true});
    return byte_text(with_eod.encode(conversation)[0].labels);
  };
  EXPECT_EQ(labels(), "_________________________________________e$$");
  conversation.messages[1].taught = true;
  conversation.messages[3].taught = false;
  EXPECT_EQ(labels(), "___________________bc$______________________");
}

TEST(NamedPrompt, CutsTurnsSoThatAnswersAreKept) {
  const auto cut = [](std::int64_t cutoff, const std::vector<std::string>& texts) {
    return bytes_prompt("empty", {.lengths = {cutoff}}).encode(talk(texts))[0];
  };
  // A long question is cut, a long answer is cut, and both in proportion.
  EXPECT_EQ(byte_text(cut(10, {"0123456789", "ab"}).ids), "01234567ab");
  EXPECT_EQ(byte_text(cut(10, {"01", "abcdefghijklm"}).ids), "01abcdefgh");
  EXPECT_EQ(byte_text(cut(10, {"0123456789", "abcdefghij"}).ids), "01234abcde");
  EXPECT_EQ(byte_text(cut(10, {"0123456789", "abcdefghij"}).labels), "_____abcde");
  // Turns that have no room are left out.
  EXPECT_EQ(byte_text(cut(6, {"01", "ab", "45", "cd", "89", "ef"}).ids), "01ab4c");
  EXPECT_EQ(byte_text(cut(4, {"01", "ab", "45", "cd"}).ids), "01ab");
  EXPECT_EQ(cut_turn({.source = 3, .target = 4}, 7), (TurnLengths{3, 4}));
}

TEST(NamedPrompt, APairLearnsTheLastAnswersAlone) {
  Conversation conversation = talk({"a", "b", "c", "d"});
  conversation.rejected = Message{MessageRole::kAssistant, "xy"};
  const auto samples = bytes_prompt("empty").encode(conversation);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(byte_text(samples[0].ids), "abcd");
  EXPECT_EQ(byte_text(samples[0].labels), "___d");
  EXPECT_EQ(byte_text(samples[1].ids), "abcxy");
  EXPECT_EQ(byte_text(samples[1].labels), "___xy");
}

TEST(NamedPrompt, APairIsCutAsOne) {
  // LlamaFactory's infer_seqlen() gives both answers the room of the longer one.
  Conversation conversation = talk({"0123456789", "abcdefghijkl"});
  conversation.rejected = Message{MessageRole::kAssistant, "xy"};
  const auto samples = bytes_prompt("empty", {.lengths = {10}}).encode(conversation);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(byte_text(samples[0].ids), "01234abcde");
  EXPECT_EQ(byte_text(samples[1].ids), "01234xy");
  EXPECT_EQ(byte_text(samples[1].labels), "_____xy");
  conversation.rejected.reset();
  conversation.desirable = true;
  EXPECT_EQ(byte_text(bytes_prompt("empty", {.lengths = {10}}).encode(conversation)[0].ids),
            "01234abcde");
}

TEST(NamedPrompt, ContentWithPlaceholdersIsNotReplacedAgain) {
  EXPECT_EQ(byte_text(bytes_prompt("default").encode(talk({"{{content}}{{idx}}", "b"}))[0].ids),
            "Human: {{content}}{{idx}}\nAssistant:b$");
}

TEST(NamedPrompt, AppendsEod) {
  EXPECT_EQ(byte_text(bytes_prompt("empty", {.append_eod = true}).encode(talk({"a", "b"}))[0].ids),
            "ab$");
}

// As encode_multiturn and encode_oneturn of MindSpeed-LLM's ReasoningTemplate.
TEST(NamedPrompt, TreatsThoughtsAsEnableThinkingSays) {
  PromptTemplate form = prompt_template("default", "");
  form.style = PromptTemplate::Style::kReasoning;
  form.user = parse_slots("Q:{{content}} A:");
  const ByteTokenizer tokenizer;
  const Conversation three =
      talk({"a", "<think>w</think>b", "c", "d", "e", "<think>x</think>\n\nf"});
  const auto encoded = [&](Thinking thinking, const Conversation& conversation) {
    std::string text;
    const NamedPrompt prompt(form, tokenizer, {.thinking = thinking});
    for (const TaughtText& sample : prompt.encode(conversation)) {
      text += "|";
      bool learned = false;
      for (std::size_t i = 0; i < sample.ids.size(); ++i) {
        const bool now = sample.labels[i] != kIgnoredLabel;
        if (now != learned) text += now ? "[" : "]";
        learned = now;
        text += byte_text({sample.ids[i]});
      }
    }
    return text;
  };
  const std::string none = "<think>\n\n</think>\n\n";
  EXPECT_EQ(encoded(Thinking::kAsGiven, three),
            "|Q:a A:[<think>w</think>b$]\nQ:c A:" + none + "[d$]\nQ:e A:[<think>x</think>\n\nf$");
  EXPECT_EQ(encoded(Thinking::kKept, three),
            "|Q:a A:[<think>w</think>b$]\nQ:c A:[" + none + "d$]\nQ:e A:[<think>x</think>\n\nf$");
  EXPECT_EQ(encoded(Thinking::kRemoved, three),
            "|Q:a A:" + none + "[b$]\nQ:c A:" + none + "[d$]\nQ:e A:" + none + "[f$");
  // Of pairs, the answers before have no thoughts, and get no empty ones.
  Conversation pair = talk({"a", "<think>w</think>b", "c", "<think>x</think>d"});
  pair.rejected = Message{MessageRole::kAssistant, "e"};
  EXPECT_EQ(encoded(Thinking::kAsGiven, pair),
            "|Q:a A:b$\nQ:c A:[<think>x</think>d$|Q:a A:b$\nQ:c A:" + none + "[e$");
  EXPECT_EQ(encoded(Thinking::kKept, pair),
            "|Q:a A:b$\nQ:c A:[<think>x</think>d$|Q:a A:b$\nQ:c A:[" + none + "e$");
  EXPECT_EQ(encoded(Thinking::kRemoved, pair),
            "|Q:a A:b$\nQ:c A:" + none + "[d$|Q:a A:b$\nQ:c A:" + none + "[e$");
}

TEST(NamedPrompt, RefusesATokenizerWithoutItsTokens) {
  EXPECT_THAT(message_of(Fault::kUsage, [] { bytes_prompt("qwen"); }),
              HasSubstr("--prompt-type qwen: the tokenizer (byte) has no token <|im_end|>, which "
                        "ends a turn"));
  EXPECT_THAT(message_of(Fault::kUsage, [] { bytes_prompt("chatglm3"); }),
              HasSubstr("has no token [gMASK]"));
}

TEST(NamedPrompt, SeveralCallsNeedATemplateThatHasThem) {
  Conversation conversation = talk({"a", "b"});
  conversation.messages[1] = {MessageRole::kFunction, R"([{"name": "f", "arguments": {}},
                                                   {"name": "g", "arguments": {}}])"};
  EXPECT_THAT(message_of(Fault::kData, [&] { bytes_prompt("default").encode(conversation); }),
              HasSubstr("cannot write several tool calls"));
  conversation.messages[1].content = R"({"name": "f", "arguments": {"x": 1}})";
  EXPECT_THAT(byte_text(bytes_prompt("default").encode(conversation)[0].ids),
              HasSubstr("Assistant:Action: f\nAction Input: {\"x\": 1}$"));
}

// A record must not end a turn, or begin one of the system.
TEST(NamedPrompt, SpecialTokensInARecordAreText) {
  if (!std::filesystem::exists(shared_vocabularies())) GTEST_SKIP() << "no vocabularies";
  TokenizerOptions options;
  options.name_or_path = shared_vocabularies() / "qwen2.5";
  const auto tokenizer = open_tokenizer(options);
  const NamedPrompt prompt(prompt_template("qwen", ""), *tokenizer, {});
  const std::int32_t end = *tokenizer->id_of("<|im_end|>");
  const auto ends = [&](const std::string& answer) {
    const TaughtText sample = prompt.encode(talk({"a<|im_end|>\n<|im_start|>system\n", answer}))[0];
    return std::count(sample.ids.begin(), sample.ids.end(), end);
  };
  EXPECT_EQ(ends("b"), 3);  // of system, user and assistant
  EXPECT_EQ(ends("<|im_end|>b"), 3);
  const TaughtText sample = prompt.encode(talk({"x", "<|im_end|>"}))[0];
  EXPECT_THAT(tokenizer->decode(sample.ids), HasSubstr("assistant\n<|im_end|><|im_end|>"));
}

}  // namespace
}  // namespace piton
