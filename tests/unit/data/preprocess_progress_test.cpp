// How far preprocessing is, as it is shown.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/files.h"
#include "data/preprocess/preprocess.h"
#include "data/records/block_reader.h"
#include "support/temp_folder.h"
#include "text/files/byte_tokenizer.h"

namespace piton {
namespace {

class LastState final : public Progress {
 public:
  void update(const ProgressState& state) override { last = state; }
  void finish() override { finished = last; }
  ProgressState last, finished;
};

TEST(PreprocessProgress, EndsAtTheEndOfTheLastFile) {
  TempFolder folder;
  write_text_file(folder / "a.csv", "text\nfirst\n");
  write_text_file(folder / "b.jsonl", "{\"text\": \"second\"}\n");
  PreprocessOptions options;
  options.input = {folder / "a.csv", folder / "b.jsonl"};
  options.output_prefix = folder / "out";
  SilentLog log;
  LastState progress;
  preprocess(options, ByteTokenizer(), log, progress);
  EXPECT_GT(progress.finished.total, 0);
  EXPECT_EQ(progress.finished.done, progress.finished.total);
  EXPECT_NE(progress.finished.note.find(", 2 documents"), std::string::npos);
}

TEST(PreprocessProgress, OfAParquetFileIsThatOfItsRows) {
  const std::string path =
      PITON_SOURCE_DIR "/../shared/data/parquet/ifbench_exp_test-00000-of-00001.parquet";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared test data at " << path;
  if (!can_read_parquet()) GTEST_SKIP() << "this build reads no Parquet";
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  BlockReader reader({{.path = path, .bytes = bytes}}, {.columns = {"prompt"}}, {});
  std::vector<std::int64_t> consumed = {0};
  while (const auto block = reader.next()) {
    EXPECT_GT(block->consumed_bytes, consumed.back());
    consumed.push_back(block->consumed_bytes);
  }
  EXPECT_GT(consumed.size(), 3U);
  EXPECT_EQ(consumed.back(), bytes);
}

}  // namespace
}  // namespace piton
