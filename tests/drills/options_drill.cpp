// Every option that takes an integer, with 0, -1, 2^31, 2^32 and 2^63 - 1, alone and in an
// otherwise valid run: accepted, or refused as usage (exit 2) in one line that names the flag.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::seconds;

// "## piton COMMAND" and "| `--name`, ... | integer | ..." of `piton help --markdown`.
std::map<std::string, std::vector<std::string>> integer_options(const std::string& page) {
  std::map<std::string, std::vector<std::string>> options;
  std::vector<std::string> general;
  std::string command;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## piton ")) command = line.substr(9);
    const std::size_t end = line.find('`', 3);
    if (!line.starts_with("| `--") || end == std::string::npos) continue;
    const std::size_t cell = line.find(" | ");
    const std::string type = line.substr(cell + 3, line.find(" | ", cell + 3) - cell - 3);
    if (type.find("integer") == std::string::npos) continue;
    const std::string name = line.substr(3, end - 3);
    (command.empty() ? general : options[command]).push_back(name);
  }
  for (auto& [name, list] : options) list.insert(list.end(), general.begin(), general.end());
  return options;
}

constexpr std::int64_t kShare = 11;  // of them, one is tried by the daily tests

class Options : public testing::Test {
 protected:
  void SetUp() override { make_corpus(folder_.path()); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // A short run of each command that ends with 0.
  std::map<std::string, Words> commands() const {
    const Words model{"--model", "llama-tiny", "--vocab-size", "256"};
    return {
        {"preprocess",
         {"preprocess", "--input", path("text.txt"), "--tokenizer-type", "ByteTokenizer",
          "--output-prefix", path("again")}},
        {"tokenize", {"tokenize", "--tokenizer-type", "ByteTokenizer", path("short.txt")}},
        {"pretrain", pretrain(folder_.path()) + Words{"--seq-length", "16", "--train-iters", "2"}},
        {"generate",
         {"generate", "--load", path("run"), "--prompt", "the", "--max-new-tokens", "2"}},
        {"score", {"score", "--load", path("run"), path("short.txt")}},
        {"plan", Words{"plan"} + model},
        {"inspect", {"inspect", path("run")}},
        {"bench", Words{"bench", "train"} + model + Words{"--seq-length", "16"}},
        {"bench gemm", Words{"bench", "gemm"} + model},
        {"bench attention", Words{"bench", "attention"} + model},
        {"bench optimizer", Words{"bench", "optimizer"} + model},
        {"bench decode", Words{"bench", "decode"} + model},
        {"bench prefill", Words{"bench", "prefill"} + model},
    };
  }

  const TempFolder folder_;
};

TEST_F(Options, AtTheirLimitsAreTakenOrRefusedAsUsage) {
  std::ofstream(folder_ / "short.txt") << "the quick brown fox\n";
  ASSERT_EQ(run(pretrain(folder_.path()) +
                Words{"--seq-length", "16", "--train-iters", "1", "--save", path("run")}),
            (ProcessEnd{.code = 0, .signal = 0}));
  Process::Settings help;
  help.out = folder_ / "help.md";
  ASSERT_EQ(run({"help", "--markdown"}, help), (ProcessEnd{.code = 0, .signal = 0}));
  auto options = integer_options(text_of(help.out));
  // Every kind of bench has the flags of all.
  for (const char* kind : {"gemm", "attention", "optimizer", "decode", "prefill"}) {
    options[std::string("bench ") + kind] = {"--rounds",  "--rows",       "--in",
                                             "--out",     "--elements",   "--context",
                                             "--tokens",  "--seq-length", "--micro-batch-size",
                                             "--threads", "--hidden-size"};
  }
  ASSERT_GT(options.at("pretrain").size(), 20U);
  const auto bases = commands();
  std::int64_t tried = 0;
  for (const auto& [command, names] : options) {
    const auto base = bases.find(command);
    if (base == bases.end()) continue;
    for (const std::string& name : names) {
      for (const char* value :
           {"0", "-1", "2147483648", "4294967296", "9223372036854775807", "18446744073709551615"}) {
        if (tried++ % (whole() ? 1 : kShare) != 0) continue;
        Process::Settings settings;
        settings.out = folder_ / "out.txt";
        settings.error = folder_ / "error.txt";
        std::filesystem::remove(settings.out);
        std::filesystem::remove(settings.error);
        const Words words = base->second + Words{name + "=" + value};
        Process process(with_program(words), settings);
        // What is taken may be slow (--train-iters 2^31): it has not failed by then.
        const auto end = process.wait(seconds(4));
        if (!end) continue;
        const std::string error = text_of(settings.error);
        // Between its limits a value may also ask for more than the data or the memory have.
        const bool between = value[0] == '2' || value[0] == '4';
        EXPECT_TRUE(end->signal == 0 && (end->code == 0 || end->code == 2 ||
                                         (between && (end->code == 3 || end->code == 4))))
            << command << " " << name << "=" << value << ": " << to_string(*end) << "\n"
            << error;
        std::filesystem::remove(path("again_text_document.bin"));
        std::filesystem::remove(path("again_text_document.idx"));
      }
    }
  }
}

}  // namespace
}  // namespace piton::drill
