// Another program truncates, touches, replaces or overwrites a corpus while a run reads it: the run
// ends in an error that names the file, or continues unchanged; never a signal. The last checkpoint
// loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;

class Corpus {
 public:
  explicit Corpus(const TinyRun& tiny) : tiny_(tiny) {
    for (const char* ending : {".bin", ".idx"}) bytes_[ending] = text_of(file(ending));
  }
  std::string file(const std::string& ending) const { return tiny_.corpus() + ending; }
  void restore() const {
    for (const auto& [ending, bytes] : bytes_) {
      fs::remove(file(ending));
      std::ofstream(file(ending), std::ios::binary) << bytes;
    }
  }
  // Other contents of the same length, by a new file of the name, or in the old one.
  void replace(const std::string& ending, bool by_rename) const {
    std::string other = bytes_.at(ending);
    for (std::size_t at = 0; at < other.size(); at += 2) other[at] = 'a';
    const std::string path = by_rename ? file(ending) + ".new" : file(ending);
    {
      std::fstream stream(path, by_rename ? std::ios::out | std::ios::binary
                                          : std::ios::in | std::ios::out | std::ios::binary);
      stream << other;
    }
    if (by_rename) fs::rename(path, file(ending));
  }

 private:
  const TinyRun& tiny_;
  std::map<std::string, std::string> bytes_;
};

TEST(CorpusInUse, ThatChangesIsAnErrorThatNamesItOrChangesNothing) {
  const TempFolder folder;
  const TinyRun tiny(folder.path(), 3000);
  const Corpus corpus(tiny);
  constexpr int kIterations = 150;
  ASSERT_EQ(tiny.run(tiny.pretrain("whole", kIterations)), (ProcessEnd{.code = 0}));
  const std::string wanted = tiny.hash("whole");

  const std::int64_t end_round = drill::end_round(5, 60);
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    drill::Draw draw(drill::seed(round));
    const auto kind = round % 5;
    const std::string ending = draw.below(2) == 0 ? ".bin" : ".idx";
    SCOPED_TRACE(testing::Message()
                 << "seed " << drill::seed(round) << ", kind " << kind << ", " << ending);
    corpus.restore();
    fs::remove_all(tiny.path("run"));
    fs::remove(tiny.path("run.txt"));
    Process process(
        drill::with_program(tiny.pretrain("run", kIterations, {"--save-interval", "10"})),
        {.out = tiny.path("run.txt")});
    ASSERT_TRUE(
        drill::wait_for(process, [&] { return fs::exists(tiny.path("run/iter_0000010")); }));
    const std::string file = corpus.file(ending);
    switch (kind) {
      case 0:
        fs::resize_file(file, static_cast<std::uintmax_t>(draw.below(1000)));
        break;
      case 1:
        fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::hours(1));
        break;
      case 2:
        corpus.replace(ending, /*by_rename=*/true);
        break;
      case 3:
        corpus.replace(".bin", /*by_rename=*/false);
        break;
      default:
        fs::remove(file);
    }
    const ProcessEnd end = process.wait(seconds(120)).value_or(ProcessEnd{});
    const std::string shown = text_of(tiny.path("run.txt"));
    if (kind == 0 || kind == 3) {
      EXPECT_EQ(end, (ProcessEnd{.code = 3})) << shown;
      EXPECT_THAT(shown, HasSubstr("corpus_text_document"));
      EXPECT_THAT(shown, AnyOf(HasSubstr("cut short while it was in use"),
                               HasSubstr("changed while it was read")));
    } else {
      EXPECT_EQ(end, (ProcessEnd{.code = 0})) << shown;
      EXPECT_EQ(tiny.hash("run"), wanted);
    }
    EXPECT_NE(tiny.hash("run"), "") << "the last checkpoint loads";
    if (kind == 0 || kind == 1 || kind == 3) {
      // With the contents as they were it continues, whatever the times.
      corpus.restore();
      EXPECT_EQ(tiny.run(tiny.pretrain("run", kIterations, {"--load", tiny.path("run")})),
                (ProcessEnd{.code = 0}))
          << tiny.shown();
      EXPECT_EQ(tiny.hash("run"), wanted);
    } else if (kind == 2) {
      const ProcessEnd other =
          tiny.run(tiny.pretrain("run", kIterations, {"--load", tiny.path("run")}));
      EXPECT_EQ(other, (ProcessEnd{.code = 3})) << tiny.shown();
    }
  }
}

}  // namespace
}  // namespace piton
