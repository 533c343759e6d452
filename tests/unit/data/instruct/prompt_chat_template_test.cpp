#include "data/instruct/prompt_chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "data/instruct/named_prompt.h"
#include "support/errors.h"
#include "talks.h"
#include "text/chat/chat_template.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

// The bytes' tokenizer with the special tokens that templates name.
class NamedBytes final : public Tokenizer {
 public:
  NamedBytes() {
    special_.bos = 256;
    special_.eos = 257;
  }
  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override {
    while (!text.empty()) {
      std::size_t length = 1;
      std::int32_t id = static_cast<unsigned char>(text[0]);
      for (std::size_t i = 0; options.parse_special_tokens && i < kNames.size(); ++i) {
        if (!text.starts_with(kNames[i])) continue;
        id = static_cast<std::int32_t>(256 + i);
        length = kNames[i].size();
      }
      out.push_back(id);
      text.remove_prefix(length);
    }
  }
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions) const override {
    std::string text;
    for (const std::int32_t id : ids) text += piece(id);
    return text;
  }
  std::string piece(std::int32_t id) const override {
    return id < 256 ? std::string(1, static_cast<char>(id))
                    : std::string(kNames.at(static_cast<std::size_t>(id - 256)));
  }
  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    const auto at = std::find(kNames.begin(), kNames.end(), piece);
    if (at == kNames.end()) return std::nullopt;
    return static_cast<std::int32_t>(256 + (at - kNames.begin()));
  }
  std::int64_t vocabulary_size() const override { return 256 + std::ssize(kNames); }
  bool is_special(std::int32_t id) const override { return id >= 256; }

 private:
  static constexpr std::array<std::string_view, 12> kNames = {
      "<s>",     "</s>", "<|im_end|>", "<|im_start|>",  "<|eot_id|>",      "<|user|>",
      "[gMASK]", "sop",  "<|system|>", "<|assistant|>", "<|observation|>", "<sop>"};
};

nlohmann::ordered_json messages_of(const Conversation& conversation) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  if (!conversation.system.empty())
    messages.push_back({{"role", "system"}, {"content", conversation.system}});
  for (const Message& message : conversation.messages) {
    const char* role = message.role == MessageRole::kUser        ? "user"
                       : message.role == MessageRole::kAssistant ? "assistant"
                                                                 : "tool";
    messages.push_back({{"role", role}, {"content", message.content}});
  }
  return messages;
}

TEST(PromptChatTemplate, RendersTheTextThatEveryNamedTemplateTeaches) {
  const NamedBytes tokenizer;
  std::vector<Conversation> conversations = {talk({"a 'b' \\ c\n", "d"}),
                                             talk({"a", "b", "c", "d", "e", "f"})};
  conversations.push_back(conversations[1]);
  conversations.back().system = "Be {{content}} brief.";
  conversations.push_back(talk({"a", "b", "c", "d"}));
  conversations.back().messages[2].role = MessageRole::kObservation;
  conversations.push_back(talk({"a", "<think>\nwhy\n</think>\n\nb", "c", "d"}));
  for (const PromptTemplate& prompt : built_in_templates()) {
    for (const Thinking thinking : {Thinking::kRemoved, Thinking::kKept, Thinking::kAsGiven}) {
      const ChatTemplate chat(chat_template_of(prompt, tokenizer, thinking), {}, prompt.name);
      const NamedPrompt named(prompt, tokenizer, {.thinking = thinking});
      for (std::size_t i = 0; i < conversations.size(); ++i) {
        // With thoughts, an answer without one teaches an empty one, which no history has.
        if (thinking == Thinking::kKept && prompt.style == PromptTemplate::Style::kReasoning)
          continue;
        SCOPED_TRACE(fmt::format("{}, conversation {}", prompt.name, i));
        const std::string wanted = tokenizer.decode(named.encode(conversations[i])[0].ids, {});
        const RenderedChat got =
            chat.render_with_assistant({.messages = messages_of(conversations[i])});
        EXPECT_EQ(got.text, wanted);
        ASSERT_EQ(got.assistant.size(), conversations[i].messages.size() / 2);
      }
    }
  }
}

TEST(PromptChatTemplate, EndsWhereTheAnswerBegins) {
  const NamedBytes tokenizer;
  const auto rendered = [&](const std::string& name, Thinking thinking) {
    return ChatTemplate(chat_template_of(prompt_template(name, ""), tokenizer, thinking), {}, name)
        .render({.messages = messages_of(talk({"a"}))}, /*add_generation_prompt=*/true)
        .text;
  };
  EXPECT_EQ(rendered("default", Thinking::kAsGiven), "Human: a\nAssistant:");
  EXPECT_EQ(rendered("llama2", Thinking::kAsGiven), "<s>[INST] a [/INST]");
  for (const Thinking thinking : {Thinking::kKept, Thinking::kAsGiven})
    EXPECT_EQ(rendered("qwen3", thinking),
              "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(rendered("qwen3", Thinking::kRemoved),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST(PromptChatTemplate, RefusesToolsAndOtherRoles) {
  const NamedBytes tokenizer;
  const ChatTemplate chat(
      chat_template_of(prompt_template("qwen", ""), tokenizer, Thinking::kAsGiven), {}, "x");
  ChatInput input{.messages = messages_of(talk({"a"}))};
  input.messages[0]["role"] = "critic";
  EXPECT_THAT(message_of(Fault::kData, [&] { chat.render(input, true); }),
              testing::HasSubstr("this template has no role critic"));
  input.messages[0]["role"] = "user";
  input.tools = nlohmann::ordered_json::array({{{"name", "f"}}});
  EXPECT_THAT(message_of(Fault::kData, [&] { chat.render(input, true); }),
              testing::HasSubstr("cannot write tools"));
}

}  // namespace
}  // namespace piton
