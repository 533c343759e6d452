// Foreign files next to every output, with very similar names: neither a run that is killed at any
// place, nor the run that resumes it, touches them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using drill::TinyRun;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class Canaries {
 public:
  explicit Canaries(const TinyRun& tiny) : tiny_(tiny) {}
  void add(const std::string& name) {
    files_[name] = "canary " + name + "\n";
    fs::create_directories(fs::path(tiny_.path(name)).parent_path());
    std::ofstream(tiny_.path(name)) << files_[name];
  }
  void expect_alive() const {
    for (const auto& [name, text] : files_) EXPECT_EQ(text_of(tiny_.path(name)), text) << name;
  }

 private:
  const TinyRun& tiny_;
  std::map<std::string, std::string> files_;
};

TEST(Canaries, BesideACorpusSurvive) {
  const TempFolder folder;
  const TinyRun tiny(folder.path(), 4000);
  const std::string bytes = text_of(tiny.corpus() + ".bin") + text_of(tiny.corpus() + ".idx");
  Canaries canaries(tiny);
  for (const char* name :
       {"out.tmp-1", "out_text_document.bin.tmp-123", "out_text_document.idx.tmp-999999",
        "out.preprocess.json.tmp-5", "out.duplicates.run-99", "out.duplicates.run-notes",
        "out2_text_document.bin.partial", "out2.preprocess.json", "out2.duplicates.run-0",
        "out2_text_document.idx.tmp-17", "out.jsonl.tmp-12", "out_other_document.bin.partial",
        "out", "out.preprocess.json.bak"}) {
    canaries.add(name);
  }
  // Its own input has the prefix and the marks of a draft in its name.
  const std::string input = tiny.path("out.duplicates.run-7.tmp-8.txt");
  fs::copy_file(tiny.path("text.txt"), input);
  const std::string input_text = text_of(input);

  const std::int64_t end_round = drill::end_round(6, 100);
  for (std::int64_t round = drill::first_round(); round < end_round; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << drill::seed(round));
    drill::Draw draw(drill::seed(round));
    drill::Words words = tiny.preprocess("out");
    words[2] = input;
    if (draw.below(2) == 0) words.push_back("--remove-duplicates");
    for (int kills = 0; kills < 3; ++kills) {
      Process process(drill::with_program(words), {.out = tiny.path("killed.txt")});
      if (process.wait(milliseconds(draw.below(60)))) break;
      process.kill(SIGKILL);
      process.wait(seconds(20));
    }
    if (!fs::exists(tiny.path("out_text_document.idx")) ||
        fs::exists(tiny.path("out.preprocess.json"))) {
      EXPECT_EQ(tiny.run(words), (ProcessEnd{.code = 0})) << tiny.shown();
    }
    EXPECT_TRUE(text_of(tiny.path("out_text_document.bin")) +
                    text_of(tiny.path("out_text_document.idx")) ==
                bytes);
    canaries.expect_alive();
    EXPECT_EQ(text_of(input), input_text);
    // What a run leaves is its corpus, and nothing else.
    for (const char* name : {"out.preprocess.json", "out.duplicates.log", "out.duplicates.run-0",
                             "out_text_document.bin.partial", "out_text_document.lengths.partial",
                             "out_text_document.documents.partial"}) {
      EXPECT_FALSE(fs::exists(tiny.path(name))) << name;
    }
    for (const char* ending : {".bin", ".idx"}) {
      fs::remove(tiny.path("out_text_document") + ending);
    }
    fs::remove(tiny.path("out.preprocess.lock"));  // of a killed one
  }
}

TEST(Canaries, WithTheVeryNamesOfARunStopItAndSurvive) {
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  for (const char* name :
       {"out_text_document.bin.partial", "out_text_document.documents.partial",
        "out.duplicates.log", "out.duplicates.run-3", "out.preprocess.json", "out.preprocess.lock",
        "out_text_document.bin", "out_text_document.idx"}) {
    Canaries canaries(tiny);
    canaries.add(name);
    const ProcessEnd end = tiny.run(tiny.preprocess("out", {"--remove-duplicates"}));
    EXPECT_TRUE(end.code == 2 || end.code == 3) << name << to_string(end) << tiny.shown();
    EXPECT_THAT(tiny.shown(), HasSubstr(name));
    canaries.expect_alive();
    fs::remove(tiny.path(name));
  }
  EXPECT_EQ(tiny.run(tiny.preprocess("out", {"--remove-duplicates"})), (ProcessEnd{.code = 0}))
      << tiny.shown();
}

TEST(Canaries, BesideCheckpointsSurvive) {
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  Canaries canaries(tiny);
  for (const char* name :
       {"run/notes.txt", "run/iter_0000001.txt", "run/iter_0000001/mp_rank_00/model_optim_rng.pt",
        "run/metrics.jsonl.tmp-5", "run/config.toml.tmp-77", "run/failure.json.tmp-9",
        "run/iter_0000002.bak/file", "run/latest_checkpointed_iteration.txt.old", "precious.txt"}) {
    canaries.add(name);
  }
  fs::create_symlink(tiny.path("precious.txt"),
                     tiny.path("run/latest_checkpointed_iteration.txt.tmp"));
  ASSERT_EQ(tiny.run(tiny.pretrain("run", 6, {"--save-interval", "2", "--keep", "1"})),
            (ProcessEnd{.code = 0}))
      << tiny.shown();
  canaries.expect_alive();
  EXPECT_TRUE(fs::exists(tiny.path("run/iter_0000006")));
  EXPECT_FALSE(fs::exists(tiny.path("run/iter_0000004"))) << "--keep 1";
  EXPECT_NE(tiny.hash("run"), "");
}

}  // namespace
}  // namespace piton
