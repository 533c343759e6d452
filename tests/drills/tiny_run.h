// A corpus and a model that are small enough for a drill to train hundreds of times, by the binary.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "drills/drill.h"
#include "support/process.h"

namespace piton::drill {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Words with_program(const Words& words) { return Words{piton()} + words; }

// Runs piton and waits up to two minutes for its end.
inline ProcessEnd run(const Words& words, const Process::Settings& settings = {}) {
  Process process(with_program(words), settings);
  return process.wait(std::chrono::seconds(120)).value_or(ProcessEnd{});
}

enum class Documents : std::uint8_t { kLines, kWhole };

// `piton preprocess` of FOLDER/text.txt to bytes.
inline Words preprocess(const std::filesystem::path& folder, const std::filesystem::path& prefix,
                        Documents documents = Documents::kLines) {
  Words words{"preprocess",       "--input",       (folder / "text.txt").string(),
              "--tokenizer-type", "ByteTokenizer", "--append-eod",
              "--output-prefix",  prefix.string()};
  if (documents == Documents::kLines) words = words + Words{"--sample-by", "line"};
  return words;
}

// Writes `lines` of text, and their bytes as the corpus FOLDER/corpus_text_document.
inline void make_corpus(const std::filesystem::path& folder, int lines = 400,
                        Documents documents = Documents::kLines) {
  std::filesystem::create_directories(folder);
  std::ofstream text(folder / "text.txt");
  for (int line = 0; line < lines; ++line) text << "the quick brown fox " << line << "\n";
  text.close();
  const std::filesystem::path out = folder / "preprocess.txt";
  EXPECT_EQ(run(preprocess(folder, folder / "corpus", documents), {.out = out}),
            (ProcessEnd{.code = 0}))
      << text_of(out);
}

// `piton pretrain` of a tiny model on that corpus; more flags follow.
inline Words pretrain(const std::filesystem::path& corpus_folder) {
  return {"pretrain",
          "--model",
          "llama-tiny",
          "--data-path",
          (corpus_folder / "corpus_text_document").string(),
          "--tokenizer-type",
          "ByteTokenizer",
          "--split",
          "100,0,0",
          "--threads",
          "1"};
}

inline std::int64_t lines_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::int64_t count = 0;
  for (std::string line; std::getline(stream, line);) ++count;
  return count;
}

// Waits until `condition` holds; false after `limit`.
inline bool wait_for(const std::function<bool()>& condition,
                     std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// The output of `inspect --hash` for the newest checkpoint; empty if it cannot be read.
inline std::string hash_of(const std::filesystem::path& run_folder) {
  const std::filesystem::path out = run_folder.string() + ".hash";
  std::filesystem::remove(out);
  Process::Settings settings;
  settings.out = out;
  settings.error = run_folder.string() + ".hash_errors";
  const ProcessEnd end = run({"inspect", run_folder.string(), "--hash", "--json"}, settings);
  return end == ProcessEnd{.code = 0, .signal = 0} ? text_of(out) : "";
}

// The iteration in the run's tracker file.
inline std::int64_t latest(const std::filesystem::path& run_folder) {
  const std::string text = text_of(run_folder / "latest_checkpointed_iteration.txt");
  return text.empty() ? 0 : std::atoll(text.c_str());
}

// The runs of a drill in one folder, which has a corpus.
class TinyRun {
 public:
  // `lines`: documents of the corpus.
  explicit TinyRun(const std::filesystem::path& folder, int lines = 400) : folder_(folder) {
    make_corpus(folder, lines);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string corpus() const { return path("corpus_text_document"); }

  Words preprocess(const std::string& prefix, const Words& more = {}) const {
    return drill::preprocess(folder_, path(prefix)) + more;
  }
  Words pretrain(const std::string& save, int iterations, const Words& more = {}) const {
    return drill::pretrain(folder_) +
           Words{"--seq-length", "16",      "--train-iters", std::to_string(iterations),
                 "--save",       path(save)} +
           more;
  }

  // Runs to the end; what it printed is shown().
  ProcessEnd run(const Words& words, const std::vector<std::string>& environment = {}) const {
    std::filesystem::remove(folder_ / "shown.txt");
    return drill::run(words, {.environment = environment, .out = folder_ / "shown.txt"});
  }
  std::string shown() const { return text_of(folder_ / "shown.txt"); }

  // hash_of() the run that was saved there.
  std::string hash(const std::string& save) const { return hash_of(path(save)); }

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
