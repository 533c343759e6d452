// Events equal those of TensorBoard's own writer; the events of a run contain its metrics.
#include "train/sinks/tensorboard_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/files/files.h"
#include "support/temp_folder.h"
#include "train/sinks/event_file.h"

namespace piton {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string in_hexadecimal(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The vectors of RFC 3720, B.4, and of the check value that catalogues of CRCs give.
TEST(EventFile, SumsAsCrc32cIsDefined) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
}

// Made by tools/oracle/tensorboard_events.py golden, with tensorboard 2.21.0.
TEST(EventFile, HasTheBytesOfTensorBoardsOwnWriter) {
  EXPECT_EQ(in_hexadecimal(event_file_head(1700000000.25)),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  EXPECT_EQ(in_hexadecimal(
                event_record(1700000001.5, 300, {{"lm loss", 10.5}, {"learning-rate", 1.5e-4}})),
            "34000000000000005e33175c0900006040fc54d94110ac022a260a0e0a076c6d206c6f73731500002841"
            "0a140a0d6c6561726e696e672d726174651552491d3914f21f40");
  EXPECT_EQ(in_hexadecimal(event_restart(1700000002.0, 301)),
            "100000000000000095fbfe180900008040fc54d94110ad023a02080184a4031a");
}

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  return files;
}

class NoLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

TEST(TensorBoardSink, MakesAFileAStartAndSaysWhereAResumeGoesOn) {
  const TempFolder dir;
  NoLog log;
  {
    TensorBoardSink sink(dir / "run/tensorboard", 0, /*timers=*/false, log);
    sink.on_step({.iteration = 1,
                  .global_batch = 4,
                  .lm_loss = 5.5,
                  .learning_rate = 3e-4,
                  .params_norm = 0.5,
                  .num_zeros = 4});
    sink.on_validation({.iteration = 1, .loss = 30});
    sink.on_finish();
  }
  { const TensorBoardSink resumed(dir / "run/tensorboard", 1, false, log); }
  const auto files = files_of(dir / "run/tensorboard");
  ASSERT_EQ(files.size(), 2);
  for (const auto& file : files) {
    EXPECT_THAT(file.filename().string(), testing::StartsWith("events.out.tfevents."));
    struct stat about {};
    ASSERT_EQ(::stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0640);
  }
  const std::string first = read_text_file(files[0]);
  for (const char* tag : {"lm loss", "learning-rate", "grad-norm", "loss-scale", "batch-size",
                          "iteration-time", "tokens-per-second", "mem-allocated-bytes",
                          "lm loss validation", "lm loss validation ppl"}) {
    EXPECT_THAT(first, HasSubstr(tag));
  }
  // After the tag a value: key 0x15, then fp32 little-endian. exp(20) bounds the perplexity.
  EXPECT_THAT(first, HasSubstr(std::string("lm loss\x15\x00\x00\xb0\x40", 12)));
  EXPECT_THAT(first, HasSubstr(std::string("batch-size\x15\x00\x00\x80\x40", 15)));
  EXPECT_THAT(first, HasSubstr(std::string("num-zeros\x15\x00\x00\x80\x40", 14)));
  EXPECT_THAT(first, HasSubstr(std::string("params-norm\x15\x00\x00\x00\x3f", 16)));
  EXPECT_THAT(first, HasSubstr(std::string("validation ppl\x15\x44\x58\xe7\x4d", 19)));
  const std::string start("\x10\x02\x3a\x02\x08\x01", 6);  // step 2, session_log { status: START }
  EXPECT_THAT(first, Not(HasSubstr(start)));
  EXPECT_THAT(read_text_file(files[1]), HasSubstr(start));
}

}  // namespace
}  // namespace piton
