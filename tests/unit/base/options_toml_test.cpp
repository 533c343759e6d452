#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/files/files.h"
#include "base/options/options.h"
#include "base/random/philox.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Values {
  bool tied = true;
  int layers = 12;
  std::uint64_t seed = 1234;
  double lr = 3e-4;
  std::string save;
  std::vector<std::string> data_path;
  std::vector<double> split = {969, 30, 1};
  std::vector<std::int64_t> counts;
  std::optional<std::int64_t> window;
  std::optional<double> scale;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"tied", "one table", {.negation = "untied", .resume = Resume::kMustMatch}}, tied);
    v(Option{"num-layers", "blocks", {.aliases = {"layers"}, .resume = Resume::kMustMatch}},
      layers);
    v(Option{"seed", "seed", {.resume = Resume::kMustMatch}}, seed);
    v(Option{"lr", "rate", {.resume = Resume::kMustMatch}}, lr);
    v(Option{"save", "where"}, save);
    v(Option{"data-path", "corpora"}, data_path);
    v(Option{"split", "shares", {.resume = Resume::kMustMatch}}, split);
    v(Option{"counts", "counts"}, counts);
    v(Option{"window", "rows", {.resume = Resume::kMustMatch}}, window);
    v(Option{"scale", "factor", {.resume = Resume::kMustMatch}}, scale);
  }
};

struct TomlFixture {
  TempFolder folder;
  Values values;
  OptionSet set;
  TomlFixture() { set.add("Run Options", values); }

  void read(std::string_view text) {
    write_text_file(folder / "x.toml", text);
    set.read_toml(folder / "x.toml");
  }
  // The message, with the folder's name cut off.
  std::string failure(std::string_view text) {
    const std::string message = message_of(Fault::kUsage, [&] { read(text); });
    return message.substr(std::min(message.size(), folder.path().string().size() + 1));
  }
};

TEST(ReadToml, ReadsEveryTypeInAnyTable) {
  TomlFixture f;
  f.read(
      "tied = false\nlayers = 24\n[optimizer]\nlr = 1\n[optimizer.deep]\nsave = 'C:\\x'\n"
      "data-path = ['a', \"b\"]\n[data]\nsplit = [1, 0.5]\ncounts = 7\nwindow = 1_000\nscale = "
      "1e-5\n"
      "seed = \"18446744073709551615\"\n");
  EXPECT_FALSE(f.values.tied);
  EXPECT_EQ(f.values.layers, 24);
  EXPECT_EQ(f.values.lr, 1.0);
  EXPECT_EQ(f.values.save, "C:\\x");
  EXPECT_THAT(f.values.data_path, ElementsAre("a", "b"));
  EXPECT_THAT(f.values.split, ElementsAre(1, 0.5));
  EXPECT_THAT(f.values.counts, ElementsAre(7));
  EXPECT_EQ(f.values.window, 1000);
  EXPECT_EQ(f.values.scale, 1e-5);
  EXPECT_EQ(f.values.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_TRUE(f.set.given("num-layers"));
}

TEST(ReadToml, TakesTheNegationAsAKey) {
  TomlFixture f;
  f.read("untied = true\n");
  EXPECT_FALSE(f.values.tied);
  f.read("untied = false\n");
  EXPECT_TRUE(f.values.tied);
}

TEST(ReadToml, GivesWayToFlags) {
  TomlFixture f;
  f.read("lr = 1.0\nnum-layers = 3\n");
  f.set.parse({"--lr", "2"});
  EXPECT_EQ(f.values.lr, 2);
  EXPECT_EQ(f.values.layers, 3);
}

TEST(ReadToml, NamesTheLineOfAMistake) {
  TomlFixture f;
  EXPECT_EQ(f.failure("lr = 1\n\n[model]\nnum-layer = 2\n"),
            "x.toml:4: unknown option \"num-layer\", did you mean \"num-layers\"?");
  EXPECT_EQ(f.failure("[a]\nlr = \"fast\"\n"), "x.toml:2: --lr: got \"fast\", wanted number");
  EXPECT_EQ(f.failure("num-layers = 2.5"), "x.toml:1: --num-layers: got \"2.5\", wanted integer");
  EXPECT_EQ(f.failure("num-layers = [2]"), "x.toml:1: num-layers: got a list, wanted integer");
  EXPECT_EQ(f.failure("seed = -1"), "x.toml:1: --seed: got \"-1\", wanted non-negative integer");
  EXPECT_EQ(f.failure("save = 1979-05-27"), "x.toml:1: save: got a date or time, wanted text");
  EXPECT_EQ(f.failure("save = 5"), "x.toml:1: save: got an integer, wanted text");
  EXPECT_EQ(f.failure("tied = 1"), "x.toml:1: tied: got an integer, wanted true or false");
  EXPECT_EQ(f.failure("split = [1, 'x']"), "x.toml:1: --split: got \"x\", wanted number");
  EXPECT_EQ(f.failure("[[lr]]\nx = 1"), "x.toml:1: lr: got a list, wanted number");
}

TEST(ReadToml, NamesEveryMistakeOfAFileAtOnce) {
  TomlFixture f;
  const std::string message =
      message_of(Fault::kUsage, [&] { f.read("lr = 'fast'\nnum-layer = 2\nseed = 3\n"); });
  EXPECT_THAT(message, testing::StartsWith("2 options cannot be taken:\n  "));
  EXPECT_THAT(message, HasSubstr("x.toml:1: --lr: got \"fast\", wanted number\n  "));
  EXPECT_THAT(message, HasSubstr("x.toml:2: unknown option \"num-layer\", did you mean"));
}

TEST(ReadToml, TakesUnderscoresInKeysAndNumbersAsPeopleWriteThem) {
  TomlFixture f;
  f.read("num_layers = 1e1\nseed = \"2k\"\nlr = \"1_0e-1\"\n");
  EXPECT_EQ(f.values.layers, 10);
  EXPECT_EQ(f.values.seed, 2000U);
  EXPECT_EQ(f.values.lr, 1.0);
  f.read("no-tied = true\n");
  EXPECT_FALSE(f.values.tied);
}

TEST(ReadToml, RefusesDuplicatesUnderAnyNameOrTable) {
  TomlFixture f;
  EXPECT_EQ(f.failure("layers = 1\n[model]\nnum-layers = 1\n"),
            "x.toml:3: num-layers is given twice; line 1 sets num-layers too");
  EXPECT_EQ(f.failure("tied = true\n[a]\nuntied = false\n"),
            "x.toml:3: untied is given twice; line 1 sets tied too");
  EXPECT_THAT(f.failure("lr = 1\nlr = 2\n"), HasSubstr("x.toml:2: not TOML: "));
}

TEST(ReadToml, RefusesWhatIsNotToml) {
  TomlFixture f;
  EXPECT_THAT(f.failure("lr = 1\nlr 2\n"), HasSubstr("x.toml:2: not TOML: "));
  message_of(Fault::kData, [&] { f.set.read_toml(f.folder / "none.toml"); });
}

// Files that start from one another, the last one read.
struct InheritFixture : TomlFixture {
  void file(const std::string& name, std::string_view text) {
    std::filesystem::create_directories((folder / name).parent_path());
    write_text_file(folder / name, text);
  }
  std::string failure(const std::string& name) {
    std::string message = message_of(Fault::kUsage, [&] { set.read_toml(folder / name); });
    const std::string where = folder.path().string() + "/";
    for (std::size_t at; (at = message.find(where)) != message.npos;)
      message.erase(at, where.size());
    return message;
  }
};

TEST(Inherit, ReadsTheOtherFileFirstAndLetsOwnKeysWin) {
  InheritFixture f;
  f.file("base.toml", "lr = 1\nlayers = 3\n[data]\nsplit = [1, 2]\ntied = true\n");
  f.file("deep/middle.toml", "inherit = '../base.toml'\nnum_layers = 4\nuntied = true\n");
  f.file("top.toml", "lr = 2.0\n[Model]\ninherit = \"deep/middle.toml\"\n");
  f.set.read_toml(f.folder / "top.toml");
  EXPECT_EQ(f.values.lr, 2);
  EXPECT_EQ(f.values.layers, 4);
  EXPECT_FALSE(f.values.tied);
  EXPECT_THAT(f.values.split, ElementsAre(1, 2));
}

TEST(Inherit, NamesFileAndLineOfAMistakeInAnyFile) {
  InheritFixture f;
  f.file("base.toml", "\nlr = 'fast'\n");
  f.file("top.toml", "inherit = 'base.toml'\n");
  EXPECT_EQ(f.failure("top.toml"), "base.toml:2: --lr: got \"fast\", wanted number");
  f.file("lost.toml", "lr = 1\ninherit = 'none.toml'\n");
  EXPECT_EQ(f.failure("lost.toml"),
            "lost.toml:2: inherit: got \"none.toml\", but there is no file none.toml");
  f.file("folder.toml", "inherit = '.'\n");
  EXPECT_THAT(f.failure("folder.toml"), HasSubstr("folder.toml:1: inherit: got \".\""));
  f.file("empty.toml", "inherit = ''\n");
  EXPECT_THAT(f.failure("empty.toml"), HasSubstr("empty.toml:1: inherit: got \"\""));
  f.file("two.toml", "inherit = ['a.toml', 'b.toml']\n");
  EXPECT_EQ(f.failure("two.toml"),
            "two.toml:1: inherit: got a list, wanted the name of a file as text");
  f.file("twice.toml", "inherit = 'base.toml'\n[a]\ninherit = 'base.toml'\n");
  f.file("base.toml", "");
  EXPECT_THAT(f.failure("twice.toml"), HasSubstr("twice.toml:3: unknown option \"inherit\""));
}

TEST(Inherit, RefusesCircles) {
  InheritFixture f;
  f.file("self.toml", "inherit = 'self.toml'\n");
  EXPECT_EQ(f.failure("self.toml"),
            "self.toml:1: inherit: got \"self.toml\", but self.toml starts from this file");
  f.file("a.toml", "inherit = 'd/b.toml'\n");
  f.file("d/b.toml", "\ninherit = '../d/../a.toml'\n");
  EXPECT_EQ(
      f.failure("a.toml"),
      "d/b.toml:2: inherit: got \"../d/../a.toml\", but d/../d/../a.toml starts from this file");
}

TEST(Inherit, IsOfFilesOnly) {
  TomlFixture f;
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { f.set.read_toml_text("inherit = 'x.toml'", "stored"); }),
      HasSubstr("stored:1: unknown option \"inherit\""));
}

TEST(Changed, SaysWhereWhatDiffersFromItsDefaultWasGiven) {
  InheritFixture f;
  f.file("base.toml", "lr = 1\nseed = 7\nnum-layers = 12\n");
  f.file("top.toml", "inherit = 'base.toml'\nlr = 2\n");
  f.set.read_toml(f.folder / "top.toml");
  f.set.parse({"--save", "x"});
  std::vector<std::string> said;
  for (const ChangedOption& one : f.set.changed()) {
    said.push_back(one.name + " = " + one.value + " of " +
                   std::filesystem::path(one.origin).filename().string());
  }
  EXPECT_THAT(said, ElementsAre("seed = 7 of base.toml", "lr = 2.0 of top.toml",
                                "save = \"x\" of the command line"));
}

TEST(ToToml, WritesEveryOptionGrouped) {
  TomlFixture f;
  f.values.save = "a \"b\" \\ \n\x01 \xC3\xA9";
  EXPECT_EQ(f.set.to_toml(),
            "[run-options]\ntied = true\nnum-layers = 12\nseed = 1234\nlr = 0.0003\n"
            "save = \"a \\\"b\\\" \\\\ \\n\\u0001 \xC3\xA9\"\ndata-path = []\n"
            "split = [969.0, 30.0, 1.0]\ncounts = []\n# window is not set\n# scale is not set\n");
}

// Doubles of all magnitudes, text of all ASCII characters, integers at their ends.
TEST(ToToml, ReadsBackToTheSameValues) {
  const PhiloxKey key = site_key(1, "toml");
  for (std::uint32_t round = 0; round < 50; ++round) {
    TomlFixture written;
    Values& v = written.values;
    const auto words = philox(key, {round, 0, 0, 0});
    v.tied = words[0] % 2 == 0;
    v.layers = round == 0 ? std::numeric_limits<int>::min() : static_cast<int>(words[1]);
    v.seed = std::uint64_t{words[0]} << 32 | words[1];
    v.lr = std::ldexp(philox_normal(key, round), static_cast<int>(words[2] % 2000) - 1000);
    if (round == 1) v.lr = std::numeric_limits<double>::infinity();
    if (round == 2) v.lr = -0.0;
    if (round == 3) v.lr = std::numeric_limits<double>::denorm_min();
    for (char c = 1; c != 127; ++c) v.save += c;
    v.save += "\x7F\xE2\x82\xAC";
    v.data_path = {"", "a,b", "# no comment", "'''", "\"\"\""};
    v.split = {v.lr, 1e22, 1e-7, 123456789.0};
    v.counts = {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    if (words[3] % 2 == 0) v.window = static_cast<std::int64_t>(words[3]);
    TomlFixture read;
    read.values.data_path = {"to be replaced"};
    read.read(written.set.to_toml());
    EXPECT_EQ(read.set.to_toml(), written.set.to_toml());
    EXPECT_EQ(read.values.layers, v.layers);
    EXPECT_EQ(read.values.seed, v.seed);
    EXPECT_EQ(read.values.lr, v.lr);
    EXPECT_EQ(std::signbit(read.values.lr), std::signbit(v.lr));
    EXPECT_EQ(read.values.save, v.save);
    EXPECT_EQ(read.values.data_path, v.data_path);
    EXPECT_EQ(read.values.split, v.split);
    EXPECT_EQ(read.values.counts, v.counts);
    EXPECT_EQ(read.values.window, v.window);
  }
}

TEST(Differences, NameTheFlagAndBothValuesOfWhatMustMatch) {
  TomlFixture stored;
  write_text_file(stored.folder / "config.toml", stored.set.to_toml());
  const auto path = stored.folder / "config.toml";
  TomlFixture now;
  EXPECT_THAT(now.set.differences(path), ElementsAre());
  now.values.save = "elsewhere";  // free to change
  EXPECT_THAT(now.set.differences(path), ElementsAre());
  now.values.lr = 1e-5;
  now.values.tied = false;
  now.values.split = {1};
  now.set.parse({"--window", "128"});
  EXPECT_THAT(
      now.set.differences(path),
      ElementsAre("--tied: " + path.string() + " has true, this run has false",
                  "--lr: " + path.string() + " has 0.0003, this run has 1e-05",
                  "--split: " + path.string() + " has [969.0, 30.0, 1.0], this run has [1.0]",
                  "--window: " + path.string() + " has none, this run has 128"));
}

TEST(Differences, SeeASettingThatAnotherSetWasGivenAndTheFileLacks) {
  TomlFixture stored;
  write_text_file(stored.folder / "config.toml", stored.set.to_toml());
  const auto path = stored.folder / "config.toml";
  TomlFixture parsed;
  parsed.set.parse({"--window", "128", "--lr", "0.0003"});
  TomlFixture now;
  now.values = parsed.values;
  EXPECT_THAT(now.set.differences(path), ElementsAre());
  std::vector<ChangedOption> given = parsed.set.changed();
  given.push_back({"from-another-set", "1", "a file"});
  now.set.mark_given(given);
  EXPECT_THAT(now.set.differences(path),
              ElementsAre("--window: " + path.string() + " has none, this run has 128"));
}

TEST(Differences, SeeAValueThatIsNoLongerSet) {
  TomlFixture now;
  write_text_file(now.folder / "config.toml",
                  "[x]\nwindow = 64\nlayers = 12\nsplit = [969, 30, 1]\n");
  const auto path = now.folder / "config.toml";
  EXPECT_THAT(now.set.differences(path),
              ElementsAre("--window: " + path.string() + " has 64, this run has none"));
}

}  // namespace
}  // namespace piton
