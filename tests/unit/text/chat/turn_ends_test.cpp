#include "text/chat/turn_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/files/tokenizer_options.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TurnEnds : public testing::Test {
 protected:
  // With the bytes as ids, and <|endoftext|> as 256.
  std::unique_ptr<Tokenizer> tokenizer_ = open_tokenizer({.type = "ByteTokenizer"});
  std::string end_ = tokenizer_->piece(*tokenizer_->special().eod);

  std::vector<std::int32_t> ends_of(const std::string& source) const {
    return turn_ends(ChatTemplate(source, {{"eos_token", end_}}, "test"), *tokenizer_);
  }
};

TEST_F(TurnEnds, AreTheSpecialTokenAfterAnAnswer) {
  EXPECT_THAT(ends_of("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}"
                      "{% endfor %}"),
              ElementsAre(*tokenizer_->special().eod));
  EXPECT_THAT(ends_of("{{ eos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
                      "{{ eos_token }}"),
              ElementsAre(*tokenizer_->special().eod));
}

TEST_F(TurnEnds, AreNoneWhereTheTemplateWritesNone) {
  EXPECT_THAT(ends_of("{{ eos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"),
              IsEmpty());
  EXPECT_THAT(ends_of("{{ eos_token }}"), IsEmpty()) << "no answer";
  EXPECT_THAT(ends_of("{{ raise_exception('no') }}"), IsEmpty());
}

}  // namespace
}  // namespace piton
