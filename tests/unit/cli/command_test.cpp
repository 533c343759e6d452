#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton::cli {

std::span<const Command> commands() {
  static constexpr Command kCommands[] = {
      {"pretrain", "[RECIPE.toml] [OPTION ...]", "train a model", "a.toml\n--lr 1", "lr", nullptr},
      {"tokenize", "", "ids of a text", "", "", nullptr},
  };
  return kCommands;
}

namespace {

using testing::ElementsAre;

struct TrainOptions {
  double lr = 1;
  int layers = 2;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"lr", "rate"}, lr);
    v(Option{"layers", "blocks"}, layers);
  }
};

struct Fixture {
  TempFolder folder;
  Terminal terminal;
  OptionSet options;
  GeneralOptions general;
  TrainOptions train;
  Fixture() { options.add("Training", train); }

  std::string file(std::string_view name, std::string_view text) {
    write_text_file(folder / name, text);
    return (folder / name).string();
  }
  std::vector<std::string> parse(std::vector<std::string> words, bool recipe = false) {
    Invocation invocation{commands()[0], std::move(words), terminal};
    return invocation.parse(options, general, recipe);
  }
};

TEST(Invocation, ReadsTheConfigFileAndLetsFlagsWin) {
  Fixture f;
  const auto path = f.file("x.toml", "lr = 5.0\nlayers = 7\nthreads = 3\n");
  EXPECT_THAT(f.parse({"--lr", "0.5", "--config", path, "word"}), ElementsAre("word"));
  EXPECT_EQ(f.train.lr, 0.5);
  EXPECT_EQ(f.train.layers, 7);
  EXPECT_EQ(f.general.threads, 3);
  EXPECT_EQ(f.general.config, path);
}

TEST(Invocation, ReadsARecipeBeforeTheConfigFile) {
  Fixture f;
  const auto recipe = f.file("r.toml", "lr = 5.0\nlayers = 7\n");
  const auto config = f.file("c.toml", "layers = 9\n");
  EXPECT_TRUE(f.parse({recipe, "--config", config}, true).empty());
  EXPECT_EQ(f.train.lr, 5);
  EXPECT_EQ(f.train.layers, 9);
}

TEST(Invocation, LeavesATomlArgumentAloneWhereNoRecipeIsMeant) {
  Fixture f;
  EXPECT_THAT(f.parse({"r.toml"}), ElementsAre("r.toml"));
}

TEST(Invocation, TakesNoConfigFromAConfig) {
  Fixture f;
  const auto recipe = f.file("r.toml", "config = \"other.toml\"\nlr = 5.0\n");
  EXPECT_EQ(message_of(Fault::kUsage, [&] { f.parse({recipe}, true); }),
            recipe + ": config: is of the command line; inherit = \"other.toml\" starts from it");
}

TEST(Invocation, StartsFromTheFileThatARecipeInherits) {
  Fixture f;
  f.file("base.toml", "lr = 5.0\nlayers = 7\n");
  const auto recipe = f.file("r.toml", "inherit = \"base.toml\"\nlayers = 9\n");
  f.parse({recipe, "--lr", "2"}, true);
  EXPECT_EQ(f.train.lr, 2);
  EXPECT_EQ(f.train.layers, 9);
}

TEST(Invocation, ShowsHelpBeforeItLooksAtAnythingElse) {
  Fixture f;
  testing::internal::CaptureStdout();
  EXPECT_THROW(f.parse({"--lr", "fast", "--help"}), HelpShown);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, testing::StartsWith("usage: piton pretrain [RECIPE.toml] [OPTION ...]\n"));
  EXPECT_THAT(text, testing::HasSubstr("  piton pretrain a.toml\n  piton pretrain --lr 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("--lr X"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("--threads N")));
  EXPECT_THAT(text, testing::EndsWith(" more options: --help all\n"));
}

TEST(Invocation, ShowsAllOptionsWhereAllAreWanted) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help", "all"}, std::vector<std::string>{"--help=all"}}) {
    Fixture f;
    testing::internal::CaptureStdout();
    EXPECT_THROW(f.parse(words), HelpShown);
    EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("--threads N"));
  }
}

TEST(Invocation, RefusesNegativeThreads) {
  Fixture f;
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         f.parse({"--threads", "-2"});
                       }),
            "--threads: got -2, wanted 0 to 8192");
}

TEST(Invocation, RefusesArgumentsTooMany) {
  refuse_more_arguments({});
  refuse_more_arguments({"a"}, 1);
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         refuse_more_arguments({"a", "b"}, 1);
                       }),
            "got \"b\", wanted at most 1 argument here; --help shows how it is used");
}

TEST(FindCommand, KnowsWhatPeopleCallThings) {
  EXPECT_EQ(message_of(Fault::kUsage, [&] { find_command("train"); }),
            "no such command: training is piton pretrain; piton --help lists all");
}

TEST(FindCommand, SuggestsTheNearest) {
  EXPECT_EQ(find_command("tokenize").name, "tokenize");
  EXPECT_EQ(message_of(Fault::kUsage, [&] { find_command("pretrian"); }),
            "unknown command, did you mean pretrain?; piton --help lists all");
}

TEST(ProgressLine, ShowsShareAndTimeLeft) {
  const ProgressState half{50, 100, 30, "12.4 MB/s"};
  EXPECT_EQ(progress_line(half, 100), "[==========>         ]  50%  50/100  12.4 MB/s  0:30 left");
  EXPECT_EQ(progress_line(half, 10), "[=========");
  EXPECT_EQ(progress_line({100, 100, 3725, ""}, 100),
            "[====================] 100%  100/100  1:02:05");
  EXPECT_EQ(progress_line({512, 0, 61, "x"}, 100), "512 done  x  1:01");
}

// Standard error of a test is no terminal here: lines, each on its own.
TEST(Terminal, WritesLinesAndKeepsQuietWhenAsked) {
  testing::internal::CaptureStderr();
  {
    Terminal terminal;
    terminal.info("first");
    terminal.update({1, 2, 1, ""});
    terminal.finish();
    terminal.be_quiet();
    terminal.info("second");
    terminal.warning("third");
    terminal.update({2, 2, 1, ""});
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr(" first\n"));
  EXPECT_THAT(text, testing::HasSubstr("50%  1/2"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("second")));
  EXPECT_THAT(text, testing::HasSubstr(" warning: third\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("2/2")));
}

}  // namespace
}  // namespace piton::cli
