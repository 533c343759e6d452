// The prompt of `piton chat`: which turns the model sees. Words are bytes, so lengths are known.
#include "cli/commands/dialogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "text/files/tokenizer_options.h"

namespace piton::cli {
namespace {

using testing::HasSubstr;

class Dialogues : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = open_tokenizer({.type = "ByteTokenizer"});
  ChatTemplate template_{
      "{% for m in messages %}<{{ m.role[0] }}{{ m.content }}>{% endfor %}"
      "{% if add_generation_prompt %}<a{% endif %}",
      nlohmann::ordered_json::object(), "test"};

  Dialogue with(const DialogueLimits& limits, const std::string& system = "") const {
    return Dialogue(template_, *tokenizer_, system, limits);
  }
  std::string text_of(const Dialogue& dialogue) const {
    return tokenizer_->decode(dialogue.prompt().ids);
  }
};

TEST_F(Dialogues, HaveAllTurnsAndTheBeginningOfTheAnswer) {
  Dialogue dialogue = with({.tokens = 100}, "be brief");
  dialogue.ask("one");
  EXPECT_EQ(text_of(dialogue), "<sbe brief><uone><a");
  dialogue.answer("1");
  dialogue.ask("two");
  EXPECT_EQ(text_of(dialogue), "<sbe brief><uone><a1><utwo><a");
  EXPECT_EQ(dialogue.prompt().left_out, 0);
  dialogue.take_back();
  dialogue.ask("three");
  EXPECT_EQ(text_of(dialogue), "<sbe brief><uone><a1><uthree><a");
  dialogue.clear();
  dialogue.ask("new");
  EXPECT_EQ(text_of(dialogue), "<sbe brief><unew><a");
}

TEST_F(Dialogues, LeaveOutTheEarliestTurnsButNotTheSystemMessage) {
  Dialogue dialogue = with({.tokens = 21}, "s");
  for (const char* word : {"one", "two"}) {
    dialogue.ask(word);
    dialogue.answer("yes");
  }
  dialogue.ask("six");
  EXPECT_EQ(dialogue.prompt().left_out, 2);
  EXPECT_EQ(text_of(dialogue), "<ss><usix><a");
}

TEST_F(Dialogues, HaveAsManyTurnsAsAreAllowed) {
  Dialogue dialogue = with({.turns = 2, .tokens = 1000});
  for (const char* word : {"one", "two"}) {
    dialogue.ask(word);
    dialogue.answer("yes");
  }
  dialogue.ask("six");
  EXPECT_EQ(text_of(dialogue), "<utwo><ayes><usix><a");
  EXPECT_EQ(dialogue.prompt().left_out, 1);
  Dialogue alone = with({.turns = 1, .tokens = 1000});
  alone.ask("one");
  alone.answer("yes");
  alone.ask("two");
  EXPECT_EQ(text_of(alone), "<utwo><a");
  EXPECT_EQ(alone.prompt().left_out, 1);
}

TEST_F(Dialogues, RefuseAQuestionThatDoesNotFit) {
  Dialogue dialogue = with({.tokens = 6});
  dialogue.ask("too long");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { dialogue.prompt(); }),
              HasSubstr("the question has 13 tokens, 6 fit; ask a shorter one"));
}

}  // namespace
}  // namespace piton::cli
