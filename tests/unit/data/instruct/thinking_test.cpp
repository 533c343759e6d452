#include "data/instruct/thinking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/instruct/instruct_options.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Parsed {
  InstructOptions options;
  OptionSet set;
  std::vector<std::string> positional;

  Parsed() { set.add("Instruction data", options); }
  Thinking of(const std::vector<std::string>& words) {
    positional = set.parse(words);
    return options.thinking;
  }
};

TEST(Thinking, IsAFlagThatMayHaveAValue) {
  Parsed parsed;
  EXPECT_EQ(parsed.of({}), Thinking::kAsGiven);
  EXPECT_EQ(parsed.of({"--enable-thinking"}), Thinking::kKept);
  EXPECT_EQ(parsed.of({"--enable-thinking", "false", "--pack"}), Thinking::kRemoved);
  EXPECT_TRUE(parsed.options.pack);
  EXPECT_EQ(parsed.of({"--enable-thinking=none"}), Thinking::kAsGiven);
  EXPECT_EQ(parsed.of({"--enable-thinking", "--seed", "1"}), Thinking::kKept);
  EXPECT_EQ(parsed.of({"--no-enable-thinking"}), Thinking::kRemoved);
  EXPECT_EQ(parsed.of({"--enable-thinking", "none"}), Thinking::kAsGiven);
  EXPECT_THAT(parsed.positional, IsEmpty());
  EXPECT_EQ(parsed.of({"--enable-thinking", "word"}), Thinking::kKept);
  EXPECT_THAT(parsed.positional, ElementsAre("word"));
  EXPECT_EQ(message_of(Fault::kUsage, [&] { parsed.of({"--enable-thinking=yes"}); }),
            "--enable-thinking: got \"yes\", wanted true, false or none");
  EXPECT_THAT(parsed.set.help(), HasSubstr("--enable-thinking [true|false|none]"));
}

TEST(Thinking, IsStoredAsAFlagThatIsUnsetForNone) {
  Parsed parsed;
  EXPECT_THAT(parsed.set.to_toml(), testing::Not(HasSubstr("\nenable-thinking")));
  parsed.of({"--enable-thinking", "false"});
  EXPECT_THAT(parsed.set.to_toml(), HasSubstr("\nenable-thinking = false\n"));
  parsed.set.read_toml_text("enable-thinking = true", "x.toml");
  EXPECT_EQ(parsed.options.thinking, Thinking::kKept);
  parsed.set.read_toml_text("enable-thinking = \"none\"", "x.toml");
  EXPECT_EQ(parsed.options.thinking, Thinking::kAsGiven);
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { parsed.set.read_toml_text("enable-thinking = 1", "x.toml"); }),
              HasSubstr("enable-thinking: got an integer, wanted true, false or none"));
}

}  // namespace
}  // namespace piton
