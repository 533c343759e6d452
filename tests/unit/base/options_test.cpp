#include "base/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/options/other_names.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Schedule { kOneForwardOneBackward, kInterleaved };

struct AllOptions {
  bool sequence_parallel = false;
  bool tied = true;
  int layers = 12;
  std::int64_t samples = 0;
  std::int64_t shard = 0;
  std::uint64_t seed = 1234;
  double lr = 3e-4;
  std::string save;
  std::string dtype = "bf16";
  std::vector<std::string> data_path;
  std::vector<int> ids;
  std::vector<std::int64_t> counts;
  std::vector<double> split = {969, 30, 1};
  std::optional<std::int64_t> window;
  std::optional<double> scale;
  std::optional<std::string> name;
  Schedule schedule = Schedule::kOneForwardOneBackward;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"sequence-parallel", "split norms too"}, sequence_parallel);
    v(Option{"tie-embeddings",
             "one table for both ends",
             {.negation = "untie-embeddings", .resume = Resume::kMustMatch}},
      tied);
    v(Option{"num-layers", "blocks", {.aliases = {"layers", "L"}, .resume = Resume::kMustMatch}},
      layers);
    v(Option{"train-samples", "samples"}, samples);
    v(Option{"shard-size", "of a file (default: a whole one)", {.placeholder = "BYTES"}}, shard);
    v(Option{"seed", "seed", {.resume = Resume::kMustMatch}}, seed);
    v(Option{"lr", "learning rate", {.resume = Resume::kMustMatch}}, lr);
    v(Option{"save", "where to save", {.placeholder = "DIR"}}, save);
    v(Option{"dtype", "type of parameters", {.choices = {"bf16", "fp16", "fp32"}}}, dtype);
    v(Option{"data-path", "corpora"}, data_path);
    v(Option{"prompt-ids", "ids"}, ids);
    v(Option{"counts", "counts"}, counts);
    v(Option{"split", "shares", {.resume = Resume::kMustMatch}}, split);
    v(Option{"window", "of attention", {.resume = Resume::kMustMatch}}, window);
    v(Option{"scale", "of scores"}, scale);
    v(Option{"name", "of the run", {.resume = Resume::kMustMatch}}, name);
    v(Option{"pipeline-schedule", "order of steps"},
      Choice(schedule, {{"1f1b", Schedule::kOneForwardOneBackward},
                        {"interleaved", Schedule::kInterleaved}}));
  }
};

struct Fixture {
  AllOptions values;
  OptionSet set;
  Fixture() { set.add("Everything", values); }
  std::vector<std::string> parse(const std::vector<std::string>& words) { return set.parse(words); }
  std::string failure(const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { set.parse(words); });
  }
};

TEST(OptionSet, ReadsEveryTypeFromWords) {
  Fixture f;
  const auto rest = f.parse({"recipe.toml",
                             "--sequence-parallel",
                             "--untie-embeddings",
                             "-L",
                             "24",
                             "--train-samples=9000000000",
                             "--seed",
                             "18446744073709551615",
                             "--lr",
                             "1e-5",
                             "--save",
                             "out",
                             "--dtype",
                             "fp32",
                             "--data-path",
                             "a",
                             "b",
                             "--prompt-ids",
                             "1,2",
                             "-3",
                             "--counts=5,6",
                             "--split",
                             ".9",
                             "0.1",
                             "--window",
                             "-1",
                             "--scale",
                             "0.5",
                             "--name",
                             "-",
                             "--pipeline-schedule",
                             "interleaved",
                             "--",
                             "--last"});
  EXPECT_THAT(rest, ElementsAre("recipe.toml", "--last"));
  const AllOptions& v = f.values;
  EXPECT_TRUE(v.sequence_parallel);
  EXPECT_FALSE(v.tied);
  EXPECT_EQ(v.layers, 24);
  EXPECT_EQ(v.samples, 9'000'000'000);
  EXPECT_EQ(v.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(v.lr, 1e-5);
  EXPECT_EQ(v.save, "out");
  EXPECT_EQ(v.dtype, "fp32");
  EXPECT_THAT(v.data_path, ElementsAre("a", "b"));
  EXPECT_THAT(v.ids, ElementsAre(1, 2, -3));
  EXPECT_THAT(v.counts, ElementsAre(5, 6));
  EXPECT_THAT(v.split, ElementsAre(0.9, 0.1));
  EXPECT_EQ(v.window, -1);
  EXPECT_EQ(v.scale, 0.5);
  EXPECT_EQ(v.name, "-");
  EXPECT_EQ(v.schedule, Schedule::kInterleaved);
  EXPECT_TRUE(f.set.given("num-layers"));
}

TEST(OptionSet, ReadsBytesInTheUnitsOfOtherPrograms) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"5GB", 5'000'000'000},
                                                        {"5G", 5'000'000'000},
                                                        {"1.5GB", 1'500'000'000},
                                                        {"2GiB", std::int64_t{2} << 30},
                                                        {"200KB", 200'000},
                                                        {"40k", 40'000},
                                                        {"512", 512},
                                                        {"512B", 512}};
  for (const auto& [word, bytes] : sizes) {
    Fixture f;
    f.parse({"--shard-size", word});
    EXPECT_EQ(f.values.shard, bytes) << word;
  }
  for (const char* word : {"5GBB", "B", "GB", "5XB"}) {
    EXPECT_EQ(
        Fixture().failure({"--shard-size", word}),
        fmt::format("--shard-size: got \"{}\", wanted bytes, such as 5000000000 or 5GB", word));
  }
  EXPECT_EQ(Fixture().failure({"--train-samples", "5GB"}),
            "--train-samples: got \"5GB\", wanted integer");
}

TEST(OptionSet, KeepsDefaultsAndKnowsThatNothingWasGiven) {
  Fixture f;
  EXPECT_TRUE(f.parse({}).empty());
  EXPECT_EQ(f.values.lr, 3e-4);
  EXPECT_FALSE(f.set.given("lr"));
}

TEST(OptionSet, ReadsFlagsWithAnAttachedTruth) {
  Fixture f;
  f.parse({"--sequence-parallel=true", "--tie-embeddings=false"});
  EXPECT_TRUE(f.values.sequence_parallel);
  EXPECT_FALSE(f.values.tied);
}

TEST(OptionSet, RefusesUnknownFlagsAndSuggestsTheNearest) {
  Fixture f;
  EXPECT_EQ(f.failure({"--num-layer", "2"}),
            "--num-layer: unknown option, did you mean --num-layers?; --help lists all");
  EXPECT_EQ(f.failure({"--quantize-everything"}),
            "--quantize-everything: unknown option; --help lists all");
  EXPECT_EQ(f.failure({"-lr", "2"}), "-lr: unknown option, did you mean --lr?; --help lists all");
  EXPECT_EQ(f.failure({"-z"}).substr(0, 18), "-z: unknown option");
}

TEST(OptionSet, RefusesValuesItCannotRead) {
  Fixture f;
  EXPECT_EQ(f.failure({"--num-layers", "two"}), "--num-layers: got \"two\", wanted integer");
  EXPECT_EQ(f.failure({"--num-layers", "2.5"}), "--num-layers: got \"2.5\", wanted integer");
  EXPECT_EQ(f.failure({"--num-layers", "3000000000"}),
            "--num-layers: got \"3000000000\", wanted integer from -2147483648 to 2147483647");
  EXPECT_EQ(f.failure({"--seed", "-1"}), "--seed: got \"-1\", wanted non-negative integer");
  EXPECT_EQ(f.failure({"--lr", "fast"}), "--lr: got \"fast\", wanted number");
  EXPECT_EQ(f.failure({"--lr", "nan"}), "--lr: got \"nan\", wanted number");
  EXPECT_EQ(f.failure({"--lr", ""}), "--lr: got \"\", wanted number");
  EXPECT_EQ(f.failure({"--prompt-ids", "1,,2"}), "--prompt-ids: got \"\", wanted integer");
  EXPECT_EQ(f.failure({"--dtype", "bf17"}),
            "--dtype: got \"bf17\", wanted one of bf16, fp16, fp32; did you mean \"bf16\"?");
  EXPECT_EQ(f.failure({"--pipeline-schedule", "gpipe"}),
            "--pipeline-schedule: got \"gpipe\", wanted one of 1f1b, interleaved");
  EXPECT_EQ(f.failure({"--sequence-parallel=yes"}),
            "--sequence-parallel: got \"yes\", wanted true or false");
  EXPECT_EQ(f.failure({"--untie-embeddings=false"}),
            "--untie-embeddings: takes no value, got \"--untie-embeddings=false\"");
  EXPECT_THAT(f.failure({"--save", "\xFF"}), HasSubstr("wanted text in UTF-8"));
}

TEST(OptionSet, RefusesAMissingValue) {
  Fixture f;
  EXPECT_EQ(f.failure({"--num-layers"}), "--num-layers: got no value, wanted integer");
  EXPECT_EQ(f.failure({"--save", "--lr", "1"}),
            "--save: got no value, wanted text (--save=--lr if that is the value)");
  EXPECT_EQ(
      f.failure({"--data-path", "--lr", "1"}),
      "--data-path: got no value, wanted list of text (--data-path=--lr if that is the value)");
}

TEST(OptionSet, TakesTheLastOfAFlagGivenTwiceAndSaysSo) {
  Fixture f;
  f.parse({"--lr", "1", "--num-layers", "4", "--lr", "2", "--num_layers=4"});
  EXPECT_EQ(f.values.lr, 2);
  EXPECT_THAT(f.set.notes(),
              ElementsAre("--lr: given twice, as \"1\" and as \"2\"; the last one counts"));
  f.parse({"--tie-embeddings", "--untie-embeddings"});
  EXPECT_FALSE(f.values.tied);
  EXPECT_EQ(f.set.notes().size(), 1U);
  f.parse({"--lr", "1", "--lr=1"});
  EXPECT_TRUE(f.set.notes().empty());
}

// Scripts of MindSpeed-LLM give a value by its old and by its new name.
TEST(OptionSet, RefusesTwoValuesByTwoNamesOfOneOption) {
  Fixture f;
  f.parse({"--num-layers", "4", "--layers", "4.0"});
  EXPECT_TRUE(f.set.notes().empty());
  EXPECT_EQ(message_of(Fault::kUsage,
                       [&] {
                         f.parse({"--num-layers", "4", "--layers", "5"});
                       }),
            "--num-layers and --layers: two names of one option, got 4 and 5; give one");
}

TEST(OptionSet, NamesEverythingThatIsWrongAtOnce) {
  Fixture f;
  EXPECT_EQ(
      f.failure({"--quantize-everything", "now", "--lr", "fast", "--num-layers", "2", "--save"}),
      "3 options cannot be taken:\n"
      "  --quantize-everything: unknown option; --help lists all\n"
      "  --lr: got \"fast\", wanted number\n"
      "  --save: got no value, wanted text");
}

TEST(OptionSet, ReadsNumbersAsPeopleWriteThem) {
  Fixture f;
  const auto samples = [&](const char* word) {
    f.parse({"--train-samples", word});
    return f.values.samples;
  };
  EXPECT_EQ(samples("1e3"), 1000);
  EXPECT_EQ(samples("1_000"), 1000);
  EXPECT_EQ(samples("4k"), 4000);
  EXPECT_EQ(samples("4Ki"), 4096);
  EXPECT_EQ(samples("2M"), 2'000'000);
  EXPECT_EQ(samples("1.5G"), 1'500'000'000);
  EXPECT_EQ(samples("-1e3"), -1000);
  f.parse({"--lr", "2k"});
  EXPECT_EQ(f.values.lr, 2000);
  EXPECT_EQ(f.failure({"--train-samples", "1.5"}), "--train-samples: got \"1.5\", wanted integer");
  EXPECT_EQ(f.failure({"--train-samples", "4kk"}), "--train-samples: got \"4kk\", wanted integer");
  EXPECT_EQ(f.failure({"--train-samples", "_1"}), "--train-samples: got \"_1\", wanted integer");
  EXPECT_EQ(f.failure({"--train-samples", "i"}), "--train-samples: got \"i\", wanted integer");
  EXPECT_THAT(f.failure({"--train-samples", "1e30"}), HasSubstr("wanted integer from "));
}

TEST(OptionSet, ClearsAnyFlagByItsNo) {
  Fixture f;
  f.parse({"--sequence-parallel", "--no-sequence-parallel"});
  EXPECT_FALSE(f.values.sequence_parallel);
  f.parse({"--no-tie-embeddings"});
  EXPECT_FALSE(f.values.tied);
}

// Another program's flags: one that means nothing here, one that means another, one refused.
class Others final : public ForeignOptions {
 public:
  std::vector<std::string> taken;
  std::optional<int> words(std::string_view name) const override {
    if (name == "backend") return 1;
    if (name == "deep") return 0;
    if (name == "ranks") return kAnyWords;
    if (name == "fp8") return 0;
    return std::nullopt;
  }
  std::vector<std::string> take(const std::string& name,
                                const std::vector<std::string>& values) override {
    if (name == "deep") return {"--num-layers", "96"};
    if (name == "fp8") throw Error(Fault::kUsage, "--fp8: not yet");
    taken.push_back(name);
    taken.insert(taken.end(), values.begin(), values.end());
    return {};
  }
};

TEST(OptionSet, AsksAboutFlagsOfAnotherProgram) {
  Fixture f;
  Others others;
  f.set.set_foreign(&others);
  EXPECT_THAT(f.parse({"--backend", "nccl", "word", "--ranks", "1", "2", "--deep", "last"}),
              ElementsAre("word", "last"));
  EXPECT_THAT(others.taken, ElementsAre("backend", "nccl", "ranks", "1", "2"));
  EXPECT_EQ(f.values.layers, 96);
  EXPECT_EQ(f.failure({"--fp8", "--lr", "fast"}),
            "2 options cannot be taken:\n  --fp8: not yet\n  --lr: got \"fast\", wanted number");
}

TEST(OptionSet, HelpShowsFlagsAliasesValuesAndDefaults) {
  Fixture f;
  const std::string help = f.set.help();
  EXPECT_THAT(help, HasSubstr("Everything:\n"));
  EXPECT_THAT(help, HasSubstr("  --num-layers, --layers, -L N    blocks (default: 12)\n"));
  EXPECT_THAT(help, HasSubstr("  --save DIR                      where to save\n"));
  EXPECT_THAT(help, HasSubstr("of a file (default: a whole one)\n"));
  EXPECT_THAT(help, HasSubstr("--tie-embeddings, --untie-embeddings"));
  EXPECT_THAT(help, HasSubstr("--pipeline-schedule 1f1b|interleaved"));
  EXPECT_THAT(help, HasSubstr("--data-path TEXT ..."));
}

TEST(OptionSet, MarkdownIsATableAGroup) {
  Fixture f;
  const std::string text = f.set.markdown();
  EXPECT_THAT(
      text,
      HasSubstr("| `--dtype` | one of bf16\\|fp16\\|fp32 | `\"bf16\"` | type of parameters |\n"));
}

TEST(OptionSet, WithTheSameTitleTwiceMakesOneGroup) {
  int a = 1;
  int b = 2;
  int c = 3;
  OptionSet set;
  set.add("Model", bind_option({"a", "first"}, a));
  set.add("Run", bind_option({"b", "second"}, b));
  set.add("Model", bind_option({"c", "third"}, c));
  EXPECT_EQ(set.to_toml(), "[model]\na = 1\nc = 3\n\n[run]\nb = 2\n");
}

TEST(OptionSet, StoresNoChoiceWhereNoneWasMade) {
  std::string kind;
  OptionSet set;
  set.add("Run", bind_option({"kind", "of run", {.choices = {"short", "long"}}}, kind));
  EXPECT_EQ(set.to_toml().find("kind ="), std::string::npos);
  set.read_toml_text(set.to_toml(), "stored.toml");
  kind = "long";
  EXPECT_THAT(set.to_toml(), HasSubstr("kind = \"long\""));
}

// Errors name flags as they were typed.
TEST(OptionSet, KnowsByWhichOtherNameAnOptionWasGiven) {
  int a = 1, b = 1, c = 1;
  OptionSet set;
  set.add("Run", bind_option({"save", "first", {.aliases = {"save-dir"}}}, a));
  set.add("Run", bind_option({"load", "second", {.aliases = {"load-dir"}}}, b));
  set.add("Run", bind_option({"num-heads", "third", {.aliases = {"heads"}}}, c));
  set.parse({"--save-dir", "2", "--load", "3", "--heads", "4"});
  EXPECT_EQ(with_typed_names("--save: got x, and --save-model; --load, --num-heads",
                             set.other_names_given()),
            "--save-dir: got x, and --save-model; --load, --heads");
  set.parse({"--save", "2"});
  EXPECT_EQ(with_typed_names("--save: x", set.other_names_given()), "--save: x");
}

TEST(OptionSetDeathTest, DeclaringANameTwiceIsABug) {
  int a = 1;
  OptionSet set;
  set.add("Model", bind_option({"layers", "first", {.aliases = {"depth"}}}, a));
  EXPECT_DEATH(set.add("Run", bind_option({"depth", "second"}, a)), "--depth is declared twice");
}

}  // namespace
}  // namespace piton
