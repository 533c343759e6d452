// --allow-fallback: a run resumes from the newest checkpoint that is whole, as if it had been given
// that one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <mutex>

#include "base/files/files.h"
#include "base/reported_elsewhere.h"
#include "support/errors.h"
#include "support/sampled.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

void flip_last_byte(const fs::path& file) {
  std::string bytes = read_text_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
}

struct Damage {
  const char* name;
  void (*apply)(const fs::path& run, const fs::path& newest);
  const char* said;
};

const std::vector<Damage> kDamages = {
    {"NoTensorFile",
     [](const fs::path&, const fs::path& newest) {
       fs::remove(newest / "model-00001.safetensors");
     },
     "model-00001.safetensors"},
    {"FlippedWeight",
     [](const fs::path&, const fs::path& newest) {
       flip_last_byte(newest / "model-00001.safetensors");
     },
     "its bytes were changed"},
    {"FlippedMoment",
     [](const fs::path&, const fs::path& newest) {
       flip_last_byte(newest / "optimizer-00001.safetensors");
     },
     "its bytes were changed"},
    {"CutFile",
     [](const fs::path&, const fs::path& newest) {
       const fs::path file = newest / "optimizer-00001.safetensors";
       fs::resize_file(file, fs::file_size(file) - 1);
     },
     "is the copy complete?"},
    {"NoManifest",
     [](const fs::path&, const fs::path& newest) { fs::remove(newest / kManifestName); },
     kManifestName},
    {"BadManifest",
     [](const fs::path&, const fs::path& newest) {
       std::ofstream(newest / kManifestName) << "{\"tensors\": [";
     },
     kManifestName},
    {"ChangedState",
     [](const fs::path&, const fs::path& newest) { flip_last_byte(newest / kStateName); },
     kStateName},
    {"ChangedOptions",
     [](const fs::path&, const fs::path& newest) { flip_last_byte(newest / kConfigName); },
     kConfigName},
    {"NoFolder", [](const fs::path&, const fs::path& newest) { fs::remove_all(newest); },
     "there is no iter_0000004"},
};

class Fallback : public testing::TestWithParam<Damage> {
 protected:
  Fallback() {
    test::write_small_corpus(prefix());
    Trainer trainer(own_.machine(), options({"--save", run()}), {});
    for (int i = 0; i < 4; ++i) {
      trainer.step();
      if (i % 2 == 1) trainer.save();
    }
    trainer.finish();
  }
  fs::path prefix() const { return folder_ / "corpus"; }
  std::string run() const { return (folder_ / "run").string(); }
  fs::path newest() const { return folder_ / "run" / "iter_0000004"; }
  PretrainOptions options(const std::vector<std::string>& more) const {
    return test::small_options(prefix(), more);
  }
  PretrainOptions again(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--save", run(), "--load", run()});
    return options(more);
  }
  static std::string hash(const fs::path& of) {
    const fs::path checkpoint = find_checkpoint(of);
    return weights_hash(checkpoint) + optimizer_hash(checkpoint);
  }
  // Continues the training to its end and returns what was reported.
  std::vector<std::string> go_on(const PretrainOptions& options) {
    EventSink sink;
    Trainer trainer(own_.machine(), options, {&sink});
    while (!trainer.done()) {
      trainer.step();
      if (trainer.save_due()) trainer.save();
    }
    trainer.finish();
    return sink.messages;
  }
  // The hash at the end of a run that is given the older checkpoint.
  std::string wanted() {
    const fs::path copy = folder_ / "copy";
    fs::create_directories(copy);
    fs::copy(folder_ / "run" / "iter_0000002", copy / "iter_0000002");
    std::ofstream(copy / kTrackerName) << "2\n";
    go_on(options({"--save", copy.string(), "--load", copy.string()}));
    return hash(copy);
  }

  TempFolder folder_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
};

TEST_P(Fallback, TakesTheOlderCheckpointAndNothingOfTheNewer) {
  const std::string whole = wanted();
  GetParam().apply(run(), newest());
  EXPECT_THAT(message_of(Fault::kData, [&] { Trainer(own_.machine(), again(), {}); }),
              AllOf(HasSubstr(GetParam().said),
                    HasSubstr("; an older checkpoint is there, iter_0000002: --allow-fallback")));
  EXPECT_EQ(latest_iteration(run()), 4) << "a refusal changes nothing";
  const std::vector<std::string> said = go_on(again({"--allow-fallback", "--save-interval", "4"}));
  EXPECT_THAT(said, Contains(AllOf(HasSubstr("warning: --allow-fallback: " + run()),
                                   HasSubstr(" is skipped: "), HasSubstr(GetParam().said))));
  EXPECT_THAT(said, Contains(HasSubstr("iter_0000002: iteration 2,")));
  EXPECT_EQ(hash(run()), whole);
  EXPECT_NE(weights_hash(newest()), "") << "was saved again";
  EXPECT_THAT(go_on(again()), Not(Contains(HasSubstr("skipped"))));
}

class FallbackOnRanks : public Fallback {};

TEST_P(FallbackOnRanks, IsTheSameOnAll) {
  GetParam().apply(run(), newest());
  std::mutex mutex;
  std::vector<std::string> warned;
  std::vector<std::string> refused(2);
  test::run_ranks(2, [&](World& world) {
    test::SmallMachine own(world);
    try {
      Trainer(own.machine(), again(), {});
    } catch (const ReportedByAnotherRank&) {
    } catch (const Error& error) {
      refused[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(refused[0] + refused[1], HasSubstr("--allow-fallback"));
  EXPECT_TRUE(refused[0].empty() || refused[1].empty()) << refused[0] << refused[1];
  test::run_ranks(2, [&](World& world) {
    test::SmallMachine own(world);
    EventSink sink;
    Trainer trainer(own.machine(), again({"--allow-fallback", "--zero-stage", "1"}), {&sink});
    EXPECT_EQ(trainer.state().iteration, 2);
    while (!trainer.done()) trainer.step();
    trainer.save();
    trainer.finish();
    const std::lock_guard lock(mutex);
    for (const std::string& line : sink.messages) {
      if (line.find("is skipped") != std::string::npos) warned.push_back(line);
    }
  });
  EXPECT_EQ(warned.size(), 1U) << "only the first rank speaks";
  EXPECT_EQ(latest_iteration(run()), 6);
}

INSTANTIATE_TEST_SUITE_P(Each, Fallback, testing::ValuesIn(test::sampled(kDamages, 3)),
                         [](const auto& one) { return std::string(one.param.name); });

INSTANTIATE_TEST_SUITE_P(Some, FallbackOnRanks,
                         testing::Values(kDamages[0], kDamages[2], kDamages[5], kDamages[8]),
                         [](const auto& one) { return std::string(one.param.name); });

class FallbackOf : public Fallback {};

TEST_F(FallbackOf, ADamagedTrackerTakesTheNewest) {
  std::ofstream(folder_ / "run" / kTrackerName) << "four\n";
  EXPECT_THAT(message_of(Fault::kData, [&] { Trainer(own_.machine(), again(), {}); }),
              HasSubstr("iter_0000004: --allow-fallback takes it"));
  Trainer trainer(own_.machine(), again({"--allow-fallback"}), {});
  EXPECT_EQ(trainer.state().iteration, 4);
}

TEST_F(FallbackOf, AMissingTrackerIsNoNewRun) {
  fs::remove(folder_ / "run" / kTrackerName);
  EventSink sink;
  Trainer trainer(own_.machine(), again(), {&sink});
  EXPECT_EQ(trainer.state().iteration, 4);
  EXPECT_THAT(sink.messages, Contains(HasSubstr("continuing from iter_0000004")));
}

TEST_F(FallbackOf, SeveralAreSkippedEachInALineAndNoneIsLeft) {
  flip_last_byte(newest() / "model-00001.safetensors");
  flip_last_byte(folder_ / "run" / "iter_0000002" / "optimizer-00001.safetensors");
  EventSink sink;
  EXPECT_THAT(
      message_of(Fault::kData,
                 [&] { Trainer(own_.machine(), again({"--allow-fallback"}), {&sink}); }),
      AllOf(HasSubstr("iter_0000002/optimizer-00001"), Not(HasSubstr("an older checkpoint"))));
  EXPECT_THAT(sink.messages, Contains(HasSubstr("iter_0000004 is skipped")));
  // Weights alone are whole there.
  Trainer trainer(own_.machine(), again({"--allow-fallback", "--no-load-optim"}), {});
  EXPECT_EQ(trainer.state().iteration, 2);
}

TEST_F(FallbackOf, ANewRunFromWeightsHasIt) {
  flip_last_byte(newest() / "model-00001.safetensors");
  EventSink sink;
  Trainer trainer(own_.machine(), options({"--finetune", "--load", run(), "--allow-fallback"}),
                  {&sink});
  EXPECT_EQ(trainer.state().iteration, 0);
  EXPECT_THAT(sink.messages, Contains(HasSubstr("from the weights of " + run() + "/iter_0000002")));
}

TEST_F(FallbackOf, AnotherModelIsNotSkipped) {
  EventSink sink;
  EXPECT_THAT(
      message_of(Fault::kUsage,
                 [&] {
                   Trainer(own_.machine(), again({"--allow-fallback", "--seed", "5"}), {&sink});
                 }),
      HasSubstr("another experiment"));
  test::write_small_corpus(prefix(), 60, 3);
  EXPECT_THAT(message_of(Fault::kData,
                         [&] { Trainer(own_.machine(), again({"--allow-fallback"}), {&sink}); }),
              HasSubstr("has changed since the checkpoint"));
  EXPECT_THAT(sink.messages, Not(Contains(HasSubstr("skipped"))));
}

TEST_F(FallbackOf, KeepDoesNotCountTheDamagedOnes) {
  flip_last_byte(newest() / "model-00001.safetensors");
  go_on(again({"--allow-fallback", "--save-interval", "5", "--keep", "3"}));
  EXPECT_TRUE(fs::exists(folder_ / "run" / "iter_0000002"));
  EXPECT_FALSE(fs::exists(newest()));
  EXPECT_TRUE(fs::exists(folder_ / "run" / "iter_0000005"));
  EXPECT_EQ(latest_iteration(run()), 6);
}

TEST_F(FallbackOf, NeedsTheFolderOfARun) {
  const auto refusal = [&](const std::vector<std::string>& words) {
    return message_of(Fault::kUsage, [&] { Trainer(own_.machine(), options(words), {}); });
  };
  EXPECT_THAT(refusal({"--allow-fallback"}), HasSubstr("--allow-fallback: needs --load DIR"));
  EXPECT_THAT(refusal({"--allow-fallback", "--load", newest().string()}),
              HasSubstr("names one checkpoint; give the folder of the run"));
  EXPECT_THAT(go_on(options({"--allow-fallback", "--load", run() + "2", "--save", run() + "2"})),
              Contains(HasSubstr("nothing is saved yet")))
      << "the first start of a run that is started again";
}

}  // namespace
}  // namespace piton
