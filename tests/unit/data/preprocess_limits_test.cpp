// Inputs larger than memory, full disks, corpora of many documents. With PITON_NIGHTLY set, the
// documented sizes; otherwise a tenth of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/files/files.h"
#include "data/preprocess/preprocess.h"
#include "data/samples/index_cache.h"
#include "packing.h"
#include "support/sampled.h"
#include "support/sanitizers.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

PreprocessReport limited_run(const PreprocessOptions& options) {
  SilentLog silent_log;
  SilentProgress silent_progress;
  return preprocess(options, ByteTokenizer(), silent_log, silent_progress);
}

struct Ended {
  int code = -1;
  std::string said;
  std::int64_t peak_bytes = 0;
};

// What `work` returns, from a separate process.
Ended in_a_process(const std::filesystem::path& notes, const std::function<std::string()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      write_text_file(notes, work());
    } catch (const std::exception& error) {
      ::_exit(9);
    }
    ::_exit(0);
  }
  Ended ended;
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended.peak_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  if (ended.code == 0) ended.said = read_text_file(notes);
  return ended;
}

TEST(Limits, MemoryStaysBelowHalfAGigabyteForALargeInputAndALineOfAGigabyte) {
  if (has_thread_sanitizer()) GTEST_SKIP() << "the work is done in a forked child with threads";
  TempFolder folder;
  std::string lines;
  for (int i = 0; i < 2000; ++i) {
    lines += R"({"text": ")" +
             std::string(static_cast<std::size_t>(500 + i), static_cast<char>('a' + i % 26)) +
             "\"}\n";
  }
  std::ofstream input(folder / "large.jsonl", std::ios::binary);
  const int copies = test::nightly() ? 320 : 32;  // of 3 MB
  for (int i = 0; i < copies; ++i) input << lines;
  // The hole in the file is a line of zero bytes.
  const std::int64_t hole = test::nightly() ? std::int64_t{1} << 30 : std::int64_t{1} << 28;
  input << R"({"text": ")";
  const auto before = static_cast<std::int64_t>(input.tellp());
  input.seekp(hole, std::ios::cur);
  input << "\"}\n" << lines;
  input.close();
  PreprocessOptions options;
  options.input = {folder / "large.jsonl"};
  options.output_prefix = folder / "out";
  options.workers = 4;
  options.on_error = OnError::kSkip;
  const Ended ended = in_a_process(folder / "notes", [&] {
    const PreprocessReport report = limited_run(options);
    return fmt::format("{} {} {}", report.documents, report.bad.count,
                       describe(report.bad.first.at(0)));
  });
  ASSERT_EQ(ended.code, 0);
  EXPECT_THAT(ended.said, HasSubstr(fmt::format("{} 1 ", (copies + 1) * 2000)));
  EXPECT_THAT(
      ended.said,
      HasSubstr(fmt::format("line {} (byte {}): the record has {} bytes, above --max-record-bytes",
                            copies * 2000 + 1, before - 10, hole + 13)));
  if (!has_sanitizer()) {
    EXPECT_LT(ended.peak_bytes, std::int64_t{512} << 20);
  }
}

TEST(Limits, AFullDiskIsNamedAndLeavesNothing) {
  TempFolder folder;
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += "a line of text that makes ids, number " + std::to_string(i) + "\n";
  put_file(folder / "in.txt", lines);
  PreprocessOptions options;
  options.input = {folder / "in.txt"};
  options.output_prefix = folder / "out/x";
  // 64 KB take the lengths but not the ids; 8 KB neither.
  for (const rlim_t most : {rlim_t{64} << 10, rlim_t{8} << 10}) {
    const Ended ended = in_a_process(folder / "notes", [&]() -> std::string {
      ::signal(SIGXFSZ, SIG_IGN);
      rlimit limit{most, most};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      try {
        limited_run(options);
      } catch (const Error& error) {
        return fmt::format("{} {}", static_cast<int>(error.fault()), error.what());
      }
      return "no error";
    });
    ASSERT_EQ(ended.code, 0);
    EXPECT_THAT(ended.said,
                testing::StartsWith(fmt::format("{} ", static_cast<int>(Fault::kData))));
    EXPECT_THAT(ended.said, HasSubstr("x_text_document"));
    EXPECT_THAT(ended.said, HasSubstr("cannot be written: "));
    EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
  }
}

// An index may be sparse: all sequences but the last are empty.
TEST(Limits, ACorpusOfManyDocumentsThatWasCheckedOpensAtOnce) {
  TempFolder folder;
  const std::int64_t sequences = test::nightly() ? 100'000'000 : 10'000'000;
  put_file(folder / "corpus.bin", std::string("\x01\0\x02\0\x03\0", 6));
  {
    std::ofstream index(folder / "corpus.idx", std::ios::binary);
    const auto put = [&]<typename T>(T value) {
      index.write(reinterpret_cast<const char*>(&value), sizeof value);
    };
    index.write("MMIDIDX\0\0", 9);
    put(std::uint64_t{1});
    put(static_cast<std::uint8_t>(IdType::kUint16));
    put(static_cast<std::uint64_t>(sequences));
    put(static_cast<std::uint64_t>(sequences + 1));
    index.seekp(4 * (sequences - 1), std::ios::cur);
    put(std::int32_t{3});
    index.seekp(8 * sequences + 8 * sequences, std::ios::cur);
    put(sequences);
  }
  open_corpus(folder / "corpus", folder / "cache");  // the first time it is read whole
  const auto start = std::chrono::steady_clock::now();
  const auto corpus = open_corpus(folder / "corpus", folder / "cache");
  std::vector<std::int32_t> ids(3);
  corpus->read(sequences - 1, 0, ids);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(corpus->documents(), sequences);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 3}));
  RecordProperty("microseconds", std::to_string(static_cast<int>(seconds * 1e6)));
  if (!has_sanitizer()) {
    EXPECT_LT(seconds, 0.1);
  }
}

}  // namespace
}  // namespace piton
