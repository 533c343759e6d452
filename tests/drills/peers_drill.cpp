// Ranks under mpirun that are killed, stopped or told to end, one at a time, at a moment drawn from
// a seed: the others notice, say why, end soon and with the right code, and what was saved is
// whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "support/temp_folder.h"
#include "support/tiny_run.h"

namespace piton::drill {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Moment { kStart, kGroups, kCollective, kSave, kExit };
constexpr const char* kMoments[] = {"start", "groups", "collective", "save", "exit"};

// Runs the program of a rank, and writes down its process number and how it ended.
constexpr const char* kWrapper = R"(#!/bin/sh
notes=$1
shift
rank=$OMPI_COMM_WORLD_RANK
trap : TERM USR1 INT
"$@" &
process=$!
echo $process > "$notes/process.$rank.new"
mv "$notes/process.$rank.new" "$notes/process.$rank"
while wait $process; code=$?; kill -0 $process 2>/dev/null; do :; done
echo $code > "$notes/code.$rank"
exit $code
)";

std::set<std::string> shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

struct Round {
  int ranks = 2;
  int victim = 0;
  int signal = SIGKILL;
  Moment moment = Moment::kCollective;
  double delay = 0;  // seconds after the moment's sign
};

Round drawn(std::uint64_t seed) {
  Draw draw(seed);
  Round round;
  round.ranks = draw.below(2) == 0 ? 2 : 4;
  round.victim = static_cast<int>(draw.below(round.ranks));
  constexpr int kSignals[] = {SIGKILL, SIGSTOP, SIGTERM};
  round.signal = kSignals[draw.below(3)];
  round.moment = static_cast<Moment>(draw.below(5));
  round.delay = draw.between(0, round.moment == Moment::kStart ? 0.4 : 0.1);
  return round;
}

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    make_corpus(folder_.path());
    std::ofstream(folder_ / "rank.sh") << kWrapper;
    std::filesystem::permissions(folder_ / "rank.sh", std::filesystem::perms::owner_all);
  }

  Words command(const Round& round, const std::filesystem::path& to) const {
    const bool short_run = round.moment == Moment::kExit;
    Words words{launcher(), std::to_string(round.ranks), (folder_ / "rank.sh").string(),
                notes(to).string()};
    words = words + with_program(pretrain(folder_.path())) +
            Words{"--seq-length",
                  "16",
                  "--train-iters",
                  short_run ? "12" : "1000000",
                  "--save-interval",
                  "4",
                  "--save",
                  to.string(),
                  "--log-interval",
                  "1",
                  "--distributed-timeout-minutes",
                  "0.08",
                  "--tensor-model-parallel-size",
                  "2"};
    if (round.ranks == 4) words = words + Words{"--zero-stage", "1"};
    return words;
  }
  static std::filesystem::path notes(const std::filesystem::path& to) {
    return to.string() + ".notes";
  }

  const TempFolder folder_;
};

bool holds_a_draft(const std::filesystem::path& run_folder) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder, gone)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.find("tmp") != std::string::npos) return true;
  }
  return false;
}

TEST_F(Peers, LoseOneOfThemInOrder) {
  const std::set<std::string> before = shared_memory();
  for (std::int64_t number = 0; number < rounds(6, 300); ++number) {
    const Round round = drawn(seed(number));
    SCOPED_TRACE(testing::Message()
                 << "round " << number << ": rank " << round.victim << " of " << round.ranks
                 << " gets signal " << round.signal << " at "
                 << kMoments[static_cast<int>(round.moment)] << " + " << round.delay << " s");
    const auto to = folder_ / ("run" + std::to_string(number));
    std::filesystem::create_directories(notes(to));
    Process::Settings settings;
    settings.out = to.string() + ".log";
    settings.environment = {"PITON_GRACE_SECONDS=1"};
    const auto log = [&] { return text_of(settings.out); };
    Process process(command(round, to), settings);

    const auto victim = notes(to) / ("process." + std::to_string(round.victim));
    const bool reached = wait_for([&] {
      if (!std::filesystem::exists(victim)) return false;
      switch (round.moment) {
        case Moment::kStart:
          return true;
        case Moment::kGroups:
          return log().find("kernels:") != std::string::npos;
        case Moment::kCollective:
          return lines_of(to / "metrics.jsonl") >= 2;
        case Moment::kSave:
          return latest(to) >= 4 && holds_a_draft(to);
        case Moment::kExit:
          return latest(to) >= 12;
      }
      return false;
    });
    ASSERT_TRUE(reached) << log();
    if (round.moment != Moment::kSave) {
      std::this_thread::sleep_for(std::chrono::duration<double>(round.delay));
    }
    const auto struck = std::chrono::steady_clock::now();
    ::kill(static_cast<pid_t>(std::atoll(text_of(victim).c_str())), round.signal);

    const auto end = process.wait(seconds(20));
    EXPECT_TRUE(end) << "still runs after 20 s\n" << log();
    process.kill_group(SIGKILL);
    if (!end) {
      process.wait(seconds(5));
      continue;
    }
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - struck).count();
    if (whole()) std::printf("%lld: %.1f s\n", static_cast<long long>(number), took);

    const std::string failure = text_of(to / "failure.json");
    std::vector<int> codes;
    for (int rank = 0; rank < round.ranks; ++rank) {
      const std::string code = text_of(notes(to) / ("code." + std::to_string(rank)));
      codes.push_back(code.empty() ? -1 : std::atoi(code.c_str()));
    }
    const std::string all = testing::PrintToString(codes) + "\n" + failure + "\n" + log();
    EXPECT_EQ(log().find("terminate called"), std::string::npos) << all;
    EXPECT_EQ(log().find("internal error"), std::string::npos) << all;
    // By itself, for a reason: never by a fault or an abort.
    for (const int code : codes) {
      EXPECT_TRUE(code != 134 && code != 139 && code != 135 && code != 1) << all;
    }
    const bool in_training = round.moment == Moment::kCollective || round.moment == Moment::kSave;
    if (in_training && round.signal == SIGTERM) {
      for (const int code : codes) EXPECT_EQ(code, 75) << all;
      EXPECT_EQ(failure, "");
    }
    if (in_training && round.signal != SIGTERM) {
      for (int rank = 0; rank < round.ranks; ++rank) {
        EXPECT_TRUE(rank == round.victim || codes[rank] == 6) << "rank " << rank << " " << all;
      }
      EXPECT_NE(failure.find("\"fault\": \"peer\""), std::string::npos) << all;
      EXPECT_NE(failure.find("rank " + std::to_string(round.victim)), std::string::npos) << all;
    }
    EXPECT_TRUE(latest(to) == 0 || !hash_of(to).empty()) << all;
    EXPECT_EQ(shared_memory(), before) << all;
    std::filesystem::remove_all(to);
  }
}

}  // namespace
}  // namespace piton::drill
