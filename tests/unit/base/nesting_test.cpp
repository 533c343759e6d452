#include "base/nesting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <toml++/toml.h>

#include "base/options/options.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(JsonDepth, IsBoundedAndNamesTheLine) {
  check_json_depth(repeated("[", kMostLevels) + repeated("]", kMostLevels), "f");
  for (const char* open : {"[", "{\"a\":", "[{\"b\":"}) {
    EXPECT_THAT(message_of(Fault::kData,
                           [&] { check_json_depth("\n\n" + repeated(open, 100'000), "f.json"); }),
                HasSubstr("f.json:3: nested too deeply: got more than 64 levels"));
  }
}

TEST(JsonDepth, IsNotThatOfBracketsInsideOfTexts) {
  check_json_depth("[\"" + repeated("[", 1000) + "\", \"\\\"" + repeated("{", 1000) + "\"]", "f");
  // Lists one after another are not in one another.
  check_json_depth("[" + repeated("[],", 1000) + "[]]", "f");
  check_json_depth("\"" + repeated("[", 1000), "f");  // never closed: the parser's business
}

TEST(TomlDepth, CountsBracketsAndDotsAlike) {
  const std::string dotted = repeated("a.", 100'000) + "b";
  for (const std::string& text :
       {"x = 1\n" + dotted + " = 1\n", "\n[" + dotted + "]\n", "\nx = " + repeated("[", 100'000),
        "\nx = " + repeated("{a = ", 100'000), "\n" + repeated("\"a\" . ", 100'000) + "b = 1",
        "\nx = {" + repeated("a.", 40) + "b = {" + repeated("a.", 40) + "b = 1}}"}) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { check_toml_depth(text, "r.toml"); }),
                HasSubstr("r.toml:2: nested too deeply"));
  }
}

TEST(TomlDepth, LetsEveryPlainFileThrough) {
  const std::string text = "# " + repeated("a.", 1000) + "\n[training.more]\nlr = 0.5\nbetas = [" +
                           repeated("0.25, ", 1000) + "1.0]\nname = \"" + repeated("a.[{", 1000) +
                           "\"\nother = '" + repeated("a.", 1000) + "'\nlong = \"\"\"\n" +
                           repeated("x.y.[\n", 1000) + "\"\"\"\nrest = '''" + repeated(".", 100) +
                           "'''\n" + repeated("a.b = [[1, 2], [3]]\n", 1);
  check_toml_depth(text, "r.toml");
  EXPECT_NO_THROW(static_cast<void>(toml::parse(text)));
}

TEST(Options, OfADeeplyNestedFileAreRefusedAndNotParsed) {
  OptionSet set;
  EXPECT_THAT(message_of(Fault::kUsage,
                         [&] { set.read_toml_text(repeated("a.", 100'000) + "b = 1", "c.toml"); }),
              HasSubstr("c.toml:1: nested too deeply"));
}

}  // namespace
}  // namespace piton
