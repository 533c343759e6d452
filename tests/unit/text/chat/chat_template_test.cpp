#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "support/chat_cases.h"
#include "support/errors.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// What Transformers gave: a text, or (nullopt) an error.
std::optional<std::string> recorded(const Json& one, bool prompt) {
  if (!prompt) {
    if (!one.contains("text")) return std::nullopt;
    return one["text"].get<std::string>();
  }
  if (one.contains("prompt")) {
    return one["text"].get<std::string>() + one["prompt"].get<std::string>();
  }
  if (!one.contains("prompted")) return std::nullopt;
  return one["prompted"].get<std::string>();
}

// Ranges in characters, as Python counts them.
Json in_characters(const RenderedChat& chat) {
  const auto count = [&](std::size_t bytes) {
    return std::count_if(chat.text.begin(), chat.text.begin() + static_cast<std::ptrdiff_t>(bytes),
                         [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
  };
  Json ranges = Json::array();
  for (const TextRange& range : chat.assistant) {
    ranges.push_back({count(range.begin), count(range.end)});
  }
  return ranges;
}

void expect_as_recorded(const ChatTemplate& chat_template, const ChatInput& input, const Json& one,
                        bool prompt) {
  const auto wanted = recorded(one, prompt);
  const std::string where = one["template"].get<std::string>() + " / " +
                            one["conversation"].get<std::string>() + (prompt ? " / prompt" : "");
  try {
    const RenderedChat chat = chat_template.render(input, prompt);
    EXPECT_EQ(chat.text, wanted.value_or("an error")) << where;
    if (!prompt) {
      EXPECT_EQ(in_characters(chat), one.contains("generation") ? one["generation"] : Json::array())
          << where;
    }
  } catch (const Error& error) {
    EXPECT_FALSE(wanted.has_value()) << where << ": " << error.what();
    // What a template says with raise_exception is in the message.
    const std::string raised =
        one.value(prompt ? "prompted_error" : "error", std::string("TemplateError: "));
    if (raised.starts_with("TemplateError: ")) {
      EXPECT_THAT(error.what(), HasSubstr(raised.substr(15, raised.find('\n') - 15))) << where;
    }
  }
}

TEST(ChatTemplate, RendersRealTemplatesAsTransformers) {
  const auto inputs = chat_inputs();
  std::map<std::string, ChatTemplate> templates;
  int errors = 0;
  for (const Json& one : chat_cases("rendered.jsonl")) {
    const auto name = one["template"].get<std::string>();
    if (templates.find(name) == templates.end()) {
      templates.emplace(name, chat_template_named(name));
    }
    for (const bool prompt : {false, true}) {
      if (!recorded(one, prompt)) ++errors;
      expect_as_recorded(templates.at(name), inputs.at(one["conversation"].get<std::string>()), one,
                         prompt);
    }
  }
  EXPECT_GE(templates.size(), 20U);
  EXPECT_GE(inputs.size(), 45U);
  EXPECT_GT(errors, 50);
}

TEST(ChatTemplate, FindsTheAssistantWithoutGenerationBlocks) {
  // The same text with and without the blocks: what follows an answer until the next message
  // belongs to the assistant here, and not to the blocks.
  const auto input = chat_inputs().at("three turns, open");
  const RenderedChat chat = chat_template_named("qwen2.5").render_with_assistant(input);
  std::vector<std::string> parts;
  for (const TextRange& range : chat.assistant) {
    parts.push_back(chat.text.substr(range.begin, range.end - range.begin));
  }
  EXPECT_THAT(parts, testing::ElementsAre("4, as 2+2=4.<|im_end|>\n", "Peano.<|im_end|>\n"));
  EXPECT_EQ(chat.text, chat_template_named("qwen2.5").render(input, false).text);
}

TEST(ChatTemplate, LeavesOutAnswersThatAreNotTaught) {
  ChatInput input;
  for (const char* text : {"ab", "cd", "ef"}) {
    input.messages.push_back({{"role", "user"}, {"content", "q"}});
    input.messages.push_back({{"role", "assistant"}, {"content", text}});
  }
  const auto parts_of = [&](const ChatTemplate& chat_template) {
    const RenderedChat chat = chat_template.render_with_assistant(input);
    std::vector<std::string> parts;
    for (const TextRange& range : chat.assistant)
      parts.push_back(chat.text.substr(range.begin, range.end - range.begin));
    return parts;
  };
  const std::string loop = "{% for m in messages %}", end = "{% endfor %}";
  const ChatTemplate plain(loop + "<{{ m.content }}>" + end, nullptr, "t");
  // Two blocks for an answer.
  const ChatTemplate blocks(
      loop +
          "{% if m.role == 'user' %}{{ m.content }}{% else %}{% generation %}{{ m.content[0] }}"
          "{% endgeneration %}-{% generation %}{{ m.content[1] }}{% endgeneration %}{% endif %}" +
          end,
      nullptr, "t");
  const ChatTemplate last(
      loop +
          "{% generation %}{{ m.content if loop.last else '' }}{% endgeneration %}"
          "{% if loop.last %}{% generation %}!{% endgeneration %}{% endif %}" +
          end,
      nullptr, "t");
  EXPECT_THAT(parts_of(plain), testing::ElementsAre("<ab>", "<cd>", "<ef>"));
  EXPECT_THAT(parts_of(blocks), testing::ElementsAre("a", "b", "c", "d", "e", "f"));
  input.untaught = {1, 5};
  EXPECT_THAT(parts_of(plain), testing::ElementsAre("<cd>"));
  EXPECT_THAT(parts_of(blocks), testing::ElementsAre("c", "d"));
  EXPECT_THAT(message_of(Fault::kData, [&] { parts_of(last); }),
              HasSubstr("t: what message 2 wrote, which is not learned, cannot be found"));
  // Earlier answers that a template changes need not be found.
  const ChatTemplate shortened(loop + "<{{ m.content if loop.last else m.content[0] }}>" + end,
                               nullptr, "t");
  input.untaught = {1, 3};
  EXPECT_THAT(parts_of(shortened), testing::ElementsAre("<ef>"));
}

TEST(ChatTemplate, SaysWhereTheAssistantCannotBeFound) {
  const auto inputs = chat_inputs();
  // QwQ drops the reasoning of earlier answers.
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           chat_template_named("qwq").render_with_assistant(
                               inputs.at("reasoning in the text"));
                         }),
              testing::AllOf(HasSubstr("qwq: what the assistant wrote cannot be found"),
                             HasSubstr("use one with generation blocks")));
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           chat_template_named("qwen2.5").render_with_assistant(
                               inputs.at("assistant first"));
                         }),
              HasSubstr("the first message is the assistant's"));
  const ChatTemplate hidden(
      "{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ m() }}", nullptr, "t");
  EXPECT_THAT(
      message_of(Fault::kData, [&] { hidden.render_with_assistant(inputs.at("one answer")); }),
      HasSubstr("t: a generation block is inside a macro"));
}

TEST(ChatTemplate, RefusesMalformedConversations) {
  const ChatTemplate chat_template("{{ messages }}", nullptr, "t");
  const auto error = [&](Json messages, Json variables = nullptr) {
    ChatInput input;
    input.messages = std::move(messages);
    input.variables = std::move(variables);
    return message_of(Fault::kData, [&] { chat_template.render(input, false); });
  };
  EXPECT_EQ(error("hi"), "t: messages: got string, wanted a list of objects");
  EXPECT_EQ(error(Json::array()),
            "t: messages: got none, wanted at least one; leave the conversation out");
  EXPECT_EQ(error({"hi"}), "t: messages: item 1 is string, wanted an object");
  EXPECT_EQ(error({{{"role", "user"}}}, {{"tools", 1}}),
            "t: variables: got \"tools\", which is given separately");
}

TEST(ChatTemplate, GivesReasoningUnderAllItsNames) {
  const ChatTemplate chat_template("{{ messages[0] }}", nullptr, "t");
  ChatInput input;
  input.messages = {{{"role", "assistant"}, {"content", nullptr}, {"reasoning", "r"}}};
  EXPECT_EQ(chat_template.render(input, false).text,
            "{'thinking': 'r', 'role': 'assistant', 'reasoning': 'r', 'reasoning_content': 'r'}");
}

}  // namespace
}  // namespace piton
