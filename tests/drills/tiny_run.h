// The smallest corpus and run, made by the binary, for drills that inspect the files.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "support/drill.h"
#include "support/process.h"

namespace piton::drill {

using Words = std::vector<std::string>;

class TinyRun {
 public:
  // `lines` of text, a document each, make the corpus FOLDER/corpus_text_document.
  explicit TinyRun(const std::filesystem::path& folder, int lines = 400) : folder_(folder) {
    std::filesystem::create_directories(folder);
    std::ofstream text(folder / "text.txt");
    for (int line = 0; line < lines; ++line) text << "the quick brown fox " << line << "\n";
    text.close();
    EXPECT_EQ(run(preprocess("corpus")), (ProcessEnd{.code = 0})) << shown();
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string corpus() const { return path("corpus_text_document"); }

  Words preprocess(const std::string& prefix, const Words& more = {}) const {
    Words words{"preprocess",  "--input", path("text.txt"), "--tokenizer-type", "ByteTokenizer",
                "--sample-by", "line",    "--append-eod",   "--output-prefix",  path(prefix)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Words pretrain(const std::string& save, int iterations, const Words& more = {}) const {
    Words words{"pretrain",
                "--model",
                "llama-tiny",
                "--data-path",
                corpus(),
                "--seq-length",
                "16",
                "--split",
                "100,0,0",
                "--train-iters",
                std::to_string(iterations),
                "--tokenizer-type",
                "ByteTokenizer",
                "--threads",
                "1",
                "--save",
                path(save)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Runs to the end; what it printed is shown(). Killed after two minutes.
  ProcessEnd run(const Words& words, const std::vector<std::string>& environment = {}) const {
    std::filesystem::remove(folder_ / "shown.txt");
    Process process(with_program(words),
                    {.environment = environment, .out = folder_ / "shown.txt"});
    return process.wait(std::chrono::seconds(120)).value_or(ProcessEnd{});
  }
  std::string shown() const { return text_of(folder_ / "shown.txt"); }

  static Words with_program(Words words) {
    words.insert(words.begin(), piton());
    return words;
  }

  // "weights ... optimizer ..." of the newest checkpoint; "" if it does not load.
  std::string hash(const std::string& save) const {
    return run({"inspect", path(save), "--hash"}) == ProcessEnd{.code = 0} ? shown() : "";
  }

 private:
  std::filesystem::path folder_;
};

// Waits until `holds()`, or `process` has ended, or two minutes are over; true if it holds.
template <typename Condition>
bool wait_for(Process& process, Condition&& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!holds()) {
    if (!process.running() || std::chrono::steady_clock::now() > until) return holds();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace piton::drill
