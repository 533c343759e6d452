#include "model_files/chat_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/files/files.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

std::map<std::string, std::string> texts_of(const ModelChatTemplates& found) {
  std::map<std::string, std::string> texts;
  for (const ChatTemplateSource& one : found.files.templates) texts[one.name] = one.text;
  return texts;
}

TEST(ChatTemplates, AreThoseOfTheFolder) {
  const TempFolder folder;
  EXPECT_THAT(texts_of(chat_templates_in("")), IsEmpty());
  EXPECT_THAT(texts_of(chat_templates_in(folder.path())), IsEmpty());
  write_text_file(folder / "tokenizer_config.json", R"({"chat_template": "{{ a }}"})");
  const ModelChatTemplates found = chat_templates_in(folder.path());
  EXPECT_THAT(texts_of(found), ElementsAre(Pair("default", "{{ a }}")));
  EXPECT_EQ(found.files.where, folder.path());
  EXPECT_EQ(found.fault, "");
}

TEST(ChatTemplates, ThatCannotBeReadHaveAFaultInTheirPlace) {
  const TempFolder folder;
  for (const char* text :
       {"{", "[]", R"({"chat_template": 1})", R"({"chat_template": [{"name": "a"}]})"}) {
    write_text_file(folder / "tokenizer_config.json", text);
    const ModelChatTemplates found = chat_templates_in(folder.path());
    EXPECT_THAT(texts_of(found), IsEmpty()) << text;
    EXPECT_THAT(found.fault, HasSubstr("tokenizer_config.json: ")) << text;
  }
}

TEST(ChatTemplates, OfAGgufFileHaveTheNamesOfItsKeysAndTheTokensOfItsVocabulary) {
  const GgufHeader header{
      .entries = {{"tokenizer.chat_template.tool_use", GgufValue::string("t")},
                  {"tokenizer.chat_template", GgufValue::string("{{ bos_token }}")},
                  {"tokenizer.chat_templates", GgufValue::strings({"tool_use"})}}};
  const ModelChatTemplates found =
      chat_templates_of(header, {{"tokenizer_config.json", R"({"bos_token": "<s>"})"}}, "x.gguf");
  EXPECT_THAT(texts_of(found),
              ElementsAre(Pair("default", "{{ bos_token }}"), Pair("tool_use", "t")));
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(choose_chat_template(found.files, "", false).render(input, false).text, "<s>");
}

}  // namespace
}  // namespace piton
