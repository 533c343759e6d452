// Descriptors 0, 1 and 2 closed, in every combination: the run writes the same files as with all of
// them open, and no line of the log is written to a file that got a standard number.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "drills/drill.h"
#include "support/process.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using std::chrono::seconds;

class Files {
 public:
  explicit Files(const std::filesystem::path& folder) : folder_(folder) {
    std::filesystem::create_directories(folder);
    std::ofstream text(folder / "text.txt");
    for (int line = 0; line < 200; ++line) text << "the quick brown fox " << line << "\n";
  }
  ProcessEnd run(std::vector<std::string> words, const std::vector<int>& closed) const {
    words.insert(words.begin(), drill::piton());
    Process process(words, {.closed = closed, .out = folder_ / "shown.txt"});
    return process.wait(seconds(120)).value_or(ProcessEnd{});
  }
  ProcessEnd preprocess(const std::vector<int>& closed) const {
    return run({"preprocess", "--input", path("text.txt"), "--tokenizer-type", "ByteTokenizer",
                "--append-eod", "--output-prefix", path("corpus")},
               closed);
  }
  ProcessEnd pretrain(const std::vector<int>& closed) const {
    return run({"pretrain", "--model", "llama-tiny", "--data-path", path("corpus_text_document"),
                "--tokenizer-type", "ByteTokenizer", "--seq-length", "16", "--train-iters", "3",
                "--split", "100,0,0", "--threads", "1", "--save", path("run")},
               closed);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST(ClosedDescriptors, ChangeNothingThatIsWritten) {
  const TempFolder folder;
  const Files open(folder / "open");
  ASSERT_EQ(open.preprocess({}), (ProcessEnd{.code = 0})) << text_of(open.path("shown.txt"));
  ASSERT_EQ(open.pretrain({}), (ProcessEnd{.code = 0})) << text_of(open.path("shown.txt"));
  for (int set = 1; set < 8; ++set) {
    std::vector<int> closed;
    for (int number = 0; number < 3; ++number) {
      if (((set >> number) & 1) != 0) closed.push_back(number);
    }
    SCOPED_TRACE(testing::Message() << "closed: " << testing::PrintToString(closed));
    const Files files(folder / ("closed" + std::to_string(set)));
    EXPECT_EQ(files.preprocess(closed), (ProcessEnd{.code = 0}));
    for (const char* name : {"corpus_text_document.bin", "corpus_text_document.idx"}) {
      EXPECT_EQ(text_of(files.path(name)), text_of(open.path(name))) << name;
    }
    EXPECT_EQ(files.pretrain(closed), (ProcessEnd{.code = 0}));
    const std::string metrics = text_of(files.path("run/metrics.jsonl"));
    std::istringstream lines(metrics);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_TRUE(line.starts_with("{\"") && line.ends_with("}")) << line;
    }
    EXPECT_EQ(count, 3) << metrics;
  }
}

}  // namespace
}  // namespace piton
