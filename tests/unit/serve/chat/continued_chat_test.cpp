#include "serve/chat/continued_chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

std::string continued(const std::string& source, const std::string& content) {
  ChatInput input;
  input.messages = {{{"role", "user"}, {"content", "q"}},
                    {{"role", "assistant"}, {"content", content}}};
  return render_continued(ChatTemplate(source, Json::object(), "t.jinja"), input).text;
}

// Texts of apply_chat_template(continue_final_message=True) of Transformers 5.24.
TEST(RenderContinued, EndsAtTheEndOfTheContent) {
  const std::string keeps =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>\n{% endfor %}";
  const std::string trims =
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</s>\n{% endfor %}";
  EXPECT_EQ(continued(keeps, "It is"), "<user>q</s>\n<assistant>It is");
  EXPECT_EQ(continued(keeps, " It is "), "<user>q</s>\n<assistant> It is ");
  EXPECT_EQ(continued(trims, "It is"), "<user>q</s>\n<assistant>It is");
  EXPECT_EQ(continued(trims, " It is "), "<user>q</s>\n<assistant>It is");
}

TEST(RenderContinued, NeedsATemplateThatWritesTheContent) {
  EXPECT_THAT([] { continued("{% for m in messages %}{{ m.role }}{% endfor %}", "It is"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("cannot be continued")));
}

}  // namespace
}  // namespace piton
