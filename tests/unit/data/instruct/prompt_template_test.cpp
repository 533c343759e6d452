#include "data/instruct/prompt_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

TEST(Slots, AreCutAtTheirMarks) {
  using enum Slot::Kind;
  EXPECT_EQ(parse_slots("{{bos_token}}[INST] {{content}}{{token <x>}}\n{{next}}b{{eos_token}}"),
            (Slots{{kBos, ""},
                   {kText, "[INST] {{content}}"},
                   {kToken, "<x>"},
                   {kText, "\n"},
                   {kText, "b"},
                   {kEos, ""}}));
}

TEST(PromptTemplates, HaveTheNamesOfMindSpeed) {
  std::set<std::string> names;
  for (const PromptTemplate& prompt : built_in_templates()) {
    EXPECT_TRUE(names.insert(prompt.name).second) << prompt.name;
    EXPECT_FALSE(prompt.replace_eos && prompt.stop_words.empty()) << prompt.name;
  }
  for (const char* name :
       {"default",   "empty",          "trl",       "chatglm2",  "chatglm3",  "chatglm3_system",
        "glm4",      "chatml",         "chatml_de", "qwen",      "qwen_r1",   "qwen_math_r1",
        "llama3",    "llama2",         "mistral",   "mixtral",   "gemma",     "alpaca",
        "deepseek2", "deepseek2-lite", "cpm",       "baichuan2", "deepseek3", "intern2",
        "hunyuan",   "qwen3",          "minicpm3"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_THAT(message_of(Fault::kUsage, [] { prompt_template("qwn", ""); }),
              HasSubstr("did you mean qwen?"));
}

TEST(PromptTemplates, OfAFileAreReadAsTheBuiltInOnes) {
  TempFolder folder;
  const std::string file = folder / "templates.json";
  write_text_file(file, R"([
    {"name": "mine", "format_user": {"slots": [["bos_token"], "U {{content}} A", {"token": "<x>"}]},
     "format_system": {"slots": ["S {{content}}"]}, "format_separator": {"slots": ["\n"]},
     "default_system": ["a", "b"], "stop_words": ["<end>"], "replace_eos": true,
     "template_class": "Llama2Template"},
    {"name": "other", "from": "the future"}])");
  const PromptTemplate prompt = prompt_template("mine", file);
  using enum Slot::Kind;
  EXPECT_EQ(prompt.user, (Slots{{kBos, ""}, {kText, "U {{content}} A"}, {kToken, "<x>"}}));
  EXPECT_EQ(prompt.assistant, (Slots{{kText, "{{content}}"}, {kEos, ""}}));
  EXPECT_EQ(prompt.observation, prompt.user);
  EXPECT_EQ(prompt.default_system, "ab");
  EXPECT_TRUE(prompt.replace_eos);
  EXPECT_EQ(prompt.style, PromptTemplate::Style::kLlama2);
  EXPECT_THAT(message_of(Fault::kUsage, [&] { prompt_template("qwen", file); }),
              HasSubstr("wanted one of " + file + "'s mine, other"));
  EXPECT_THAT(message_of(Fault::kData, [&] { prompt_template("other", file); }),
              HasSubstr("\"from\" is not a key of templates"));
}

TEST(PromptTemplates, ThatAreDamagedSayWhere) {
  TempFolder folder;
  const std::string file = folder / "templates.json";
  const auto fault = [&](const std::string& rest) {
    write_text_file(file, R"([{"name": "x", )" + rest + "}]");
    return message_of(Fault::kData, [&] { prompt_template("x", file); });
  };
  EXPECT_THAT(fault(R"("format_user": {"slots": ["no place"]})"),
              HasSubstr("templates.json: x: \"format_user\" has no {{content}}"));
  EXPECT_THAT(fault(R"("format_user": {"slots": [3]})"), HasSubstr("has the slot 3, wanted"));
  EXPECT_THAT(fault(R"("format_prefix": ["a"])"), HasSubstr("has no list \"slots\""));
  EXPECT_THAT(fault(R"("replace_eos": "yes")"), HasSubstr("neither true nor false"));
  EXPECT_THAT(fault(R"("stop_words": "x")"), HasSubstr("not a list of texts"));
  EXPECT_THAT(fault(R"("template_class": "Other")"), HasSubstr("wanted Llama2Template"));
  write_text_file(file, "{}");
  EXPECT_THAT(message_of(Fault::kData, [&] { prompt_template("x", file); }),
              HasSubstr("not a list of templates"));
}

}  // namespace
}  // namespace piton
