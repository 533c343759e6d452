// Ten thousand changed checkpoints with correct hashes: the load function and the binary refuse
// each of them, with exit code 2 or 3 and no signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/store.h"
#include "drills/checkpoint_mutants.h"
#include "support/process.h"
#include "support/temp_folder.h"
#include "unit/checkpoint/small_model.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// A few tensors of each kind.
const test::ModelVariant kVariant{.biases = false, .blocks = 1};

TEST(CheckpointMutants, AreRefusedByTheLoad) {
  const TempFolder dir;
  const auto save = [&](World& world) {
    test::SmallRun run(world, {}, kVariant);
    run.fill(10);
    save_checkpoint(run.stored(), run.context(), {dir / "run", test::state_of(1), "lr = 0.1\n"});
  };
  test::run_ranks(1, save);
  const drill::CheckpointFiles original(dir / "run/iter_0000001");
  std::set<std::string> kinds;
  std::int64_t loaded = 0;
  test::run_ranks(1, [&](World& world) {
    test::SmallRun run(world, {}, kVariant);
    const std::int64_t end_round = drill::end_round(300, 10'000);
    for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
      drill::Draw draw(drill::seed(round));
      fs::remove_all(dir / "mutant");
      const drill::Mutant mutant = drill::write_mutant(original, dir / "mutant", draw);
      kinds.insert(mutant.what);
      const bool weights_only = draw.below(2) == 0;
      run.fill(40);
      SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round) << ": " << mutant.what
                                      << (weights_only ? ", weights alone" : ""));
      try {
        load_checkpoint(dir / "mutant", run.stored(!weights_only), run.context());
        // What was loaded is what was saved, whatever the state says.
        EXPECT_TRUE(mutant.may_load || (weights_only && mutant.unread_by_weights));
        EXPECT_EQ(run.differences(10, false), 0);
        ++loaded;
      } catch (const Error& error) {
        EXPECT_TRUE(error.fault() == Fault::kData || error.fault() == Fault::kUsage)
            << error.what();
        // Bytes are compared with their hash as they are read; all else is checked before.
        const bool of_bytes =
            std::string_view(error.what()).find("its bytes were changed") != std::string_view::npos;
        if (!of_bytes) {
          EXPECT_EQ(run.differences(40), 0) << error.what();
        }
      }
    }
  });
  RecordProperty("loaded", static_cast<int>(loaded));
  EXPECT_GT(kinds.size(), 40U);
}

// The configuration: sizes that overflow, nests, kinds.
std::string hostile_line(drill::Draw& draw) {
  constexpr const char* kSizes[] = {"max-position-embeddings", "num-layers", "hidden-size",
                                    "ffn-hidden-size",         "vocab-size", "num-attention-heads",
                                    "num-query-groups",        "kv-channels"};
  constexpr const char* kValues[] = {
      "1152921504606846976", "9223372036854775807", "-1", "4294967296000", "\"text\"", "[1]", "1.5",
      "2305843009213693952"};
  const std::string key = kSizes[draw.below(8)];
  switch (draw.below(4)) {
    case 0:
      return drill::repeated("a.", 100'000) + "b = 1\n";
    case 1:
      return key + " = " + drill::repeated("[", 100'000) + "\n";
    default:
      return key + " = " + kValues[draw.below(8)] + "\n";
  }
}

TEST(CheckpointMutants, AreRefusedByTheBinary) {
  const TempFolder dir;
  std::ofstream(dir / "text.txt") << drill::repeated("to be or not to be\n", 200);
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), drill::piton());
    fs::remove(dir / "shown.txt");
    Process process(words, {.out = dir / "shown.txt"});
    return process.wait(seconds(120)).value_or(ProcessEnd{});
  };
  ASSERT_EQ(run({"preprocess", "--input", dir / "text.txt", "--tokenizer-type", "ByteTokenizer",
                 "--output-prefix", dir / "corpus"}),
            (ProcessEnd{.code = 0}));
  const std::vector<std::string> pretrain = {"pretrain",
                                             "--model",
                                             "llama-tiny",
                                             "--data-path",
                                             dir / "corpus_text_document",
                                             "--seq-length",
                                             "16",
                                             "--split",
                                             "100,0,0",
                                             "--tokenizer-type",
                                             "ByteTokenizer",
                                             "--train-iters",
                                             "2",
                                             "--threads",
                                             "1",
                                             "--save",
                                             dir / "run"};
  ASSERT_EQ(run(pretrain), (ProcessEnd{.code = 0})) << text_of(dir / "shown.txt");
  const drill::CheckpointFiles original(dir / "run/iter_0000002");
  const std::string config = original.files.at("config.toml");

  const std::int64_t end_round = drill::end_round(12, 500);
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    drill::Draw draw(drill::seed(round));
    fs::remove_all(dir / "mutant");
    drill::Mutant mutant;
    const bool of_config = draw.below(2) == 0;
    if (of_config) {
      drill::CheckpointFiles changed = original;
      const std::string line = hostile_line(draw);
      const std::string key = line.substr(0, line.find(' '));
      // In the place of the line of that key, so that nothing is given twice.
      std::string text = config;
      if (const std::size_t at = text.find("\n" + key + " ="); at != text.npos) {
        text.replace(at + 1, text.find('\n', at + 1) - at, line);
      } else {
        text += line;
      }
      changed.set_text("config.toml", text);
      changed.write(dir / "mutant", changed.manifest_text());
      mutant.what = "config.toml: " + line.substr(0, 60);
    } else {
      mutant = drill::write_mutant(original, dir / "mutant", draw);
    }
    const std::vector<std::vector<std::string>> commands = {
        {"generate", "--load", dir / "mutant", "--prompt-ids", "65", "--max-new-tokens", "1"},
        {"score", "--load", dir / "mutant", dir / "text.txt"},
    };
    const ProcessEnd end = run(commands[static_cast<std::size_t>(draw.below(2))]);
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round) << ": " << mutant.what << "\n"
                                    << text_of(dir / "shown.txt").substr(0, 500));
    EXPECT_TRUE(end.code == 2 || end.code == 3 ||
                (end.code == 0 && (mutant.may_load || mutant.unread_by_weights)))
        << to_string(end);
    std::vector<std::string> resume = pretrain;
    resume.back() = dir / "other";
    resume.insert(resume.end(), {"--load", dir / "mutant"});
    const ProcessEnd resumed = run(resume);
    EXPECT_TRUE(resumed.code == 2 || resumed.code == 3 || (resumed.code == 0 && mutant.may_load))
        << to_string(resumed) << "\n"
        << text_of(dir / "shown.txt").substr(0, 500);
    fs::remove_all(dir / "other");
  }
}

}  // namespace
}  // namespace piton
