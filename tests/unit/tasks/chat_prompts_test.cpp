// Prompts under a chat template are those of lm-evaluation-harness, to the byte:
// tests/golden/evaluation/chat.jsonl, made by tools/oracle/evaluation_chat.py.
#include "tasks/chat_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/files/files.h"
#include "support/errors.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

const std::string kGolden = std::string(PITON_SOURCE_DIR) + "/tests/golden/evaluation/";

ChatTemplate template_of(const std::string& source) {
  return ChatTemplate(source, {{"bos_token", "<s>"}}, "a template");
}

TEST(ChatPrompts, AreThoseOfLmEvaluationHarness) {
  std::istringstream lines(read_text_file(kGolden + "chat.jsonl"));
  std::string line;
  std::getline(lines, line);
  const auto templates = nlohmann::json::parse(line);
  std::size_t compared = 0;
  while (std::getline(lines, line)) {
    const auto golden = nlohmann::json::parse(line);
    SCOPED_TRACE(golden["task"].dump() + golden["subject"].dump() + golden["template"].dump() +
                 golden["multiturn"].dump());
    TaskData data = load_task(find_task(golden["task"], {}),
                              {.paths = {kGolden + "data"}, .num_shots = golden["num_shots"]});
    const std::string before = data.prompt_hash;
    make_chat_prompts(data, template_of(templates[golden["template"].get<std::string>()]),
                      {.multiturn = golden["multiturn"]});
    EXPECT_NE(data.prompt_hash, before);
    EXPECT_TRUE(data.is_chat);
    std::size_t next = 0;
    for (const TaskSample& sample : data.samples) {
      if (sample.subject != golden["subject"]) continue;
      const auto& wanted = golden["samples"].at(next++);
      EXPECT_EQ(sample.contexts, wanted["contexts"].get<std::vector<std::string>>());
      EXPECT_EQ(sample.continuations, wanted["continuations"].get<std::vector<std::string>>());
      ++compared;
    }
    EXPECT_EQ(next, golden["samples"].size());
  }
  EXPECT_GE(compared, 100U);
}

TEST(ChatPrompts, OfAWrittenTextOfExamplesAreOneTurn) {
  TaskData data = load_task(find_task("bbh", {}), {.paths = {kGolden + "data"}});
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         make_chat_prompts(data, template_of("{{ messages[0].content }}"),
                                           {.multiturn = true});
                       }),
            "--fewshot-as-multiturn: the examples of bbh are one written text; leave it out");
}

TEST(ChatPrompts, OfTextsWhosePerplexityIsMeasuredAreTheTexts) {
  TaskData data = load_task(find_task("wikitext", {}), {.paths = {kGolden + "data"}});
  const std::string before = data.prompt_hash;
  make_chat_prompts(data, template_of("{{ messages[0].content }}"), {});
  EXPECT_EQ(data.prompt_hash, before);
  EXPECT_FALSE(data.is_chat);
}

TEST(ChatPrompts, OfPreferencesAreAConversationForEachAnswer) {
  TaskData data;
  data.task = {.kind = TaskKind::kPreference};
  data.samples = {{.choices = {"a", "b"}, .system = "Be kind.", .asked = {"q"}}};
  const ChatTemplate all = template_of(
      "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}a:{% endif %}");
  make_chat_prompts(data, all, {});
  EXPECT_FALSE(data.is_chat);
  make_preference_texts(data, all);
  EXPECT_THAT(data.samples[0].contexts,
              testing::ElementsAre("<s>s:Be kind.;u:q;a:a;", "<s>s:Be kind.;u:q;a:b;"));
  EXPECT_TRUE(data.is_chat);
  EXPECT_EQ(data.prompt_hash, hash_of_prompts(data.samples));
}

TEST(ChatPrompts, AreRefusedAsTheTemplateRefusesThem) {
  TaskData data = load_task(find_task("boolq", {}), {.paths = {kGolden + "data"}});
  EXPECT_THAT(
      message_of(
          Fault::kData,
          [&] { make_chat_prompts(data, template_of("{{ raise_exception('not this') }}"), {}); }),
      testing::HasSubstr("not this"));
}

}  // namespace
}  // namespace piton
