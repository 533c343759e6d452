#include "text/chat/chat_template_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::string rendered(const ChatTemplate& chat_template) {
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", "hi"}}};
  return chat_template.render(input, false).text;
}

std::string default_of(const TempFolder& folder, const std::string& name = "",
                       bool with_tools = false) {
  return rendered(choose_chat_template(read_chat_templates(folder.path()), name, with_tools));
}

TEST(ChatTemplateFiles, ReadsATemplateAndTokensOfAConfiguration) {
  const TempFolder folder;
  write_text_file(folder / "tokenizer_config.json",
                  R"({"bos_token": {"content": "<b>", "special": true}, "eos_token": "<e>",
                      "pad_token": null, "image_token": "<i>", "add_bos_token": true,
                      "chat_template": "{{ bos_token }}{{ eos_token }}{{ pad_token }}|{{ image_token }}"})");
  EXPECT_EQ(default_of(folder), "<b><e>|<i>");
  EXPECT_EQ(rendered(choose_chat_template(read_chat_templates(folder / "tokenizer_config.json"), "",
                                          false)),
            "<b><e>|<i>");
}

TEST(ChatTemplateFiles, TakesTokensOfTheMapWhereTheConfigurationIsOld) {
  const TempFolder folder;
  write_text_file(folder / "special_tokens_map.json", R"({"bos_token": "<map>"})");
  write_text_file(folder / "tokenizer_config.json",
                  R"({"bos_token": "<config>", "chat_template": "{{ bos_token }}"})");
  EXPECT_EQ(default_of(folder), "<map>");
  write_text_file(folder / "tokenizer_config.json",
                  R"({"bos_token": "<config>", "added_tokens_decoder": {},
                      "chat_template": "{{ bos_token }}"})");
  EXPECT_EQ(default_of(folder), "<config>");
}

TEST(ChatTemplateFiles, ChoosesByNameAndByTools) {
  const TempFolder folder;
  write_text_file(folder / "tokenizer_config.json",
                  R"({"chat_template": [{"name": "default", "template": "d"},
                                        {"name": "tool_use", "template": "t"},
                                        {"name": "rag", "template": "r"}]})");
  EXPECT_EQ(default_of(folder), "d");
  EXPECT_EQ(default_of(folder, "", true), "t");
  EXPECT_EQ(default_of(folder, "rag", true), "r");
  EXPECT_EQ(message_of(Fault::kData, [&] { default_of(folder, "x"); }),
            folder.path().string() +
                ": no such chat template: got \"x\", wanted one of default, rag, tool_use");
}

TEST(ChatTemplateFiles, PrefersJinjaFiles) {
  const TempFolder folder;
  write_text_file(folder / "tokenizer_config.json",
                  R"({"chat_template": [{"name": "default", "template": "d"},
                                        {"name": "tool_use", "template": "t"}]})");
  write_text_file(folder / "chat_template.jinja", "file\n");
  // All templates of the configuration are ignored.
  EXPECT_EQ(default_of(folder, "", true), "file");
  create_folders(folder / "chat_templates");
  write_text_file(folder / "chat_templates/tool_use.jinja", "tool file");
  EXPECT_EQ(default_of(folder, "", true), "tool file");
  EXPECT_EQ(default_of(folder), "file");
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           write_text_file(folder / "chat_template.jinja", "a\n{{");
                           default_of(folder);
                         }),
              HasSubstr("chat_template.jinja: line 2: a tag has no end"));
}

TEST(ChatTemplateFiles, SayWhatIsMissingOrMalformed) {
  const TempFolder folder;
  EXPECT_THAT(message_of(Fault::kData, [&] { default_of(folder); }),
              HasSubstr("no chat template: wanted a default template; give a folder with"));
  write_text_file(folder / "tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(message_of(Fault::kData, [&] { default_of(folder); }),
              HasSubstr("chat_template: got number, wanted a text or a list"));
  write_text_file(folder / "tokenizer_config.json", R"({"chat_template": [{"name": "x"}]})");
  EXPECT_THAT(message_of(Fault::kData, [&] { default_of(folder); }),
              HasSubstr("got an item without the text \"template\""));
  write_text_file(folder / "tokenizer_config.json", "[");
  EXPECT_THAT(message_of(Fault::kData, [&] { default_of(folder); }),
              HasSubstr("got no JSON object, wanted one"));
}

}  // namespace
}  // namespace piton
