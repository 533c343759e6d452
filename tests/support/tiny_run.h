// A corpus and a model that are small enough for a drill to train hundreds of times.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "support/drill.h"
#include "support/process.h"

namespace piton::drill {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Words with_program(const Words& words) { return Words{piton()} + words; }

// Runs piton and waits up to a minute for its end.
inline ProcessEnd run(const Words& words, const Process::Settings& settings = {}) {
  Process process(with_program(words), settings);
  return process.wait(std::chrono::seconds(60)).value_or(ProcessEnd{});
}

// Writes a text of some kilobytes, and its bytes as the corpus FOLDER/corpus_text_document.
inline void make_corpus(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream text(folder / "text.txt");
  for (int line = 0; line < 400; ++line) text << "the quick brown fox number " << line << "\n";
  text.close();
  Process::Settings settings;
  settings.out = folder / "preprocess.txt";
  ASSERT_EQ(run({"preprocess", "--input", (folder / "text.txt").string(), "--tokenizer-type",
                 "ByteTokenizer", "--append-eod", "--output-prefix", (folder / "corpus").string()},
                settings),
            (ProcessEnd{.code = 0, .signal = 0}))
      << text_of(settings.out);
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

}  // namespace piton::drill
