// One rank under mpirun is killed, stopped or asked to end, at a random moment: the others detect
// it, report the reason and end soon with the right code, and saved checkpoints are whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi/job_record.h"
#include "drills/tiny_run.h"
#include "run_metrics.h"
#include "support/temp_folder.h"

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
printf '%x' "$PMIX_NAMESPACE" > "$notes/job"
trap : TERM USR1 INT
"$@" &
process=$!
echo $process > "$notes/process.$rank.new"
mv "$notes/process.$rank.new" "$notes/process.$rank"
while wait $process; code=$?; kill -0 $process 2>/dev/null; do :; done
echo $code > "$notes/code.$rank"
# mpirun kills the rest a second after the first code that is not 0. That a signal ended the run is
# said by all ranks, so each is given the time to say it.
waited=0
set -- "$notes"/code.*
while [ $code = 75 ] && [ $# -lt "$OMPI_COMM_WORLD_SIZE" ] && [ $waited -lt 100 ]; do
  sleep 0.1
  waited=$((waited + 1))
  set -- "$notes"/code.*
done
exit $code
)";

// What the run with this number has left in shared memory.
std::vector<std::string> left_by(const std::string& job) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (job.size() > 4 && name.find(job) != std::string::npos) names.push_back(name);
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

// At night all. By day each moment once: a kill at the start and in a save, SIGTERM while groups
// are made and in a collective, and a stop at the exit.
std::vector<std::int64_t> rounds_of_today() {
  const bool chosen = std::getenv("PITON_DRILL_ROUNDS") || std::getenv("PITON_DRILL_FIRST");
  if (!whole() && !chosen) return {1, 8, 2, 12, 3};
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = first_round(); number < end_round(6, 300); ++number) {
    numbers.push_back(number);
  }
  return numbers;
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
                  "--tensor-model-parallel-size",
                  "2"};
    // A rank that is stopped is missed by the clock alone; all else shows at once.
    if (round.signal == SIGSTOP) words = words + Words{"--distributed-timeout-minutes", "0.13"};
    if (round.ranks == 4) words = words + Words{"--zero-stage", "1"};
    return words;
  }
  static std::filesystem::path notes(const std::filesystem::path& to) {
    return to.string() + ".notes";
  }

  // How many ranks have, with code 0.
  static int ended_well(const std::filesystem::path& to, const Round& round) {
    int count = 0;
    for (int rank = 0; rank < round.ranks; ++rank) {
      if (text_of(notes(to) / ("code." + std::to_string(rank))) == "0\n") ++count;
    }
    return count;
  }

  // Whether a process of a rank is left.
  static bool any_lives(const std::filesystem::path& to, const Round& round) {
    for (int rank = 0; rank < round.ranks; ++rank) {
      const auto process = notes(to) / ("process." + std::to_string(rank));
      if (std::filesystem::exists(process) &&
          ::kill(static_cast<pid_t>(std::atoll(text_of(process).c_str())), 0) == 0) {
        return true;
      }
    }
    return false;
  }

  void lose_one(std::int64_t number);
  enum class Blow : std::uint8_t { kKill, kStop, kDelay };
  void continue_after(Blow blow, const Words& flags,
                      const std::map<std::int64_t, StepFigures>& wanted);

  const TempFolder folder_;
  std::atomic<std::int64_t> too_slow_{0};
  std::atomic<std::int64_t> launcher_hangs_{0};
};

// By day five at a time, most of which wait: for each other, the launcher, or a limit of time.
template <typename Case, typename Run>
void for_each_at_once(const std::vector<Case>& all, const Run& run) {
  const std::size_t most = whole() ? 1 : 5;
  for (std::size_t first = 0; first < all.size(); first += most) {
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < std::min(all.size(), first + most); ++i) {
      threads.emplace_back([&run, &one = all[i]] { run(one); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

bool holds_a_draft(const std::filesystem::path& run_folder) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(run_folder, gone)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.find("tmp") != std::string::npos) return true;
  }
  return false;
}

void Peers::lose_one(std::int64_t number) {
  const Round round = drawn(seed(number));
  SCOPED_TRACE(testing::Message() << "round " << number << ": rank " << round.victim << " of "
                                  << round.ranks << " gets signal " << round.signal << " at "
                                  << kMoments[static_cast<int>(round.moment)] << " + "
                                  << round.delay << " s");
  const auto to = folder_ / ("run" + std::to_string(number));
  std::filesystem::create_directories(notes(to));
  Process::Settings settings;
  settings.out = to.string() + ".log";
  settings.environment = {grace()};
  const auto log = [&] { return text_of(settings.out); };
  Process process(command(round, to), settings);

  const auto victim = notes(to) / ("process." + std::to_string(round.victim));
  const auto has_come = [&] {
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
  };
  bool reached = false;
  wait_for([&] {
    const bool over = !process.running();
    reached = has_come();
    return reached || over;
  });
  if (!reached && round.signal == SIGSTOP) {  // the machine is slower than that limit
    ++too_slow_;
    return;
  }
  EXPECT_TRUE(reached) << log();
  if (!reached) return;
  if (round.moment != Moment::kSave) {
    std::this_thread::sleep_for(std::chrono::duration<double>(round.delay));
  }
  const auto struck = std::chrono::steady_clock::now();
  ::kill(static_cast<pid_t>(std::atoll(text_of(victim).c_str())), round.signal);

  std::optional<ProcessEnd> end;
  bool unmissed = false;
  wait_for(
      [&] {
        end = process.wait(milliseconds(0));
        unmissed = round.signal == SIGSTOP && ended_well(to, round) == round.ranks - 1;
        return end || unmissed;
      },
      seconds(20));
  if (!end && unmissed) {
    // Stopped behind its last word to the others, which are done and content: nobody is left to
    // miss it, and mpirun waits for it as long as it is stopped.
    ::kill(static_cast<pid_t>(std::atoll(text_of(victim).c_str())), SIGCONT);
    end = process.wait(seconds(10));
  }
  if (!end && round.moment == Moment::kStart && !any_lives(to, round)) {
    // Open MPI's mpirun may wait for ever for a rank that died while it made itself known ("PMIX
    // ERROR: UNREACHABLE"). The ranks are gone, which is what is ours.
    ++launcher_hangs_;
    process.kill_group(SIGKILL);
    process.wait(seconds(5));
    return;
  }
  EXPECT_TRUE(end) << "still runs after 20 s\n" << log();
  process.kill_group(SIGKILL);
  if (!end) {
    process.wait(seconds(5));
    return;
  }
  const double took =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - struck).count();
  if (whole()) {
    std::printf("%lld: %.1f s\n", static_cast<long long>(number), took);
    std::fflush(stdout);
  }

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
  // Where all ranks were killed nobody could clean up; the next run does, and nothing stays. A
  // rank that mpirun has just killed may still be on its way out, and holds what it has mapped.
  wait_for(
      [&] {
        sweep_dead_jobs();
        return left_by(text_of(notes(to) / "job")).empty();
      },
      seconds(5));
  EXPECT_THAT(left_by(text_of(notes(to) / "job")), testing::IsEmpty()) << all;
  std::filesystem::remove_all(to);
}

TEST_F(Peers, LoseOneOfThemInOrder) {
  for_each_at_once(rounds_of_today(), [&](std::int64_t number) { lose_one(number); });
  EXPECT_LE(too_slow_, 1 + rounds(6, 300) / 10);
  EXPECT_LE(launcher_hangs_, 1 + rounds(6, 300) / 20);
}

void Peers::continue_after(Blow blow, const Words& flags,
                           const std::map<std::int64_t, StepFigures>& wanted) {
  const std::int64_t iterations = std::ssize(wanted);
  const Words four{"--tensor-model-parallel-size", "2", "--zero-stage", "1"};
  SCOPED_TRACE(testing::Message() << "blow " << static_cast<int>(blow));
  const auto to = folder_ / ("four" + std::to_string(static_cast<int>(blow)));
  std::filesystem::create_directories(notes(to));
  Process::Settings settings;
  settings.out = to.string() + ".log";
  settings.environment = {grace()};
  Words words = Words{launcher(), "4", (folder_ / "rank.sh").string(), notes(to).string()} +
                with_program(flags) + four + Words{"--save", to.string()};
  // Only a rank that stays stopped is to be missed by the clock.
  if (blow == Blow::kStop) words = words + Words{"--distributed-timeout-minutes", "0.13"};
  Process process(words, settings);
  const int victim = 1 + static_cast<int>(blow);
  ASSERT_TRUE(wait_for([&] { return latest(to) >= 5 || !process.running(); }))
      << text_of(settings.out);
  ASSERT_TRUE(process.running()) << "over too soon\n" << text_of(settings.out);
  const auto number = static_cast<pid_t>(
      std::atoll(text_of(notes(to) / ("process." + std::to_string(victim))).c_str()));
  ::kill(number, blow == Blow::kKill ? SIGKILL : SIGSTOP);
  if (blow == Blow::kDelay) {
    std::this_thread::sleep_for(seconds(2));
    ::kill(number, SIGCONT);
    const auto end = process.wait(seconds(120));
    ASSERT_TRUE(end) << text_of(settings.out);
    EXPECT_EQ(*end, (ProcessEnd{.code = 0})) << text_of(settings.out);
    EXPECT_FALSE(std::filesystem::exists(to / "failure.json"));
  } else {
    const auto end = process.wait(seconds(30));
    process.kill_group(SIGKILL);
    ASSERT_TRUE(end) << "still runs after 30 s\n" << text_of(settings.out);
    EXPECT_NE(text_of(to / "failure.json").find("rank " + std::to_string(victim)),
              std::string::npos)
        << text_of(to / "failure.json") << text_of(settings.out);
    const std::int64_t saved = latest(to);
    ASSERT_GE(saved, 5);
    ASSERT_LT(saved, iterations);
    // Two ranks after a kill, one after a stop.
    Words again = with_program(flags) + Words{"--save", to.string(), "--load", to.string()};
    if (blow == Blow::kKill) {
      again = Words{launcher(), "2"} + again + Words{"--tensor-model-parallel-size", "2"};
    }
    Process resumed(again, {.out = to.string() + ".resumed.log"});
    const auto over = resumed.wait(seconds(120));
    ASSERT_TRUE(over);
    EXPECT_EQ(*over, (ProcessEnd{.code = 0})) << text_of(to.string() + ".resumed.log");
  }
  const auto got = steps_of(to);
  ASSERT_EQ(std::ssize(got), iterations);
  for (const auto& [iteration, step] : got) {
    ASSERT_EQ(step.samples, wanted.at(iteration).samples) << "samples of step " << iteration;
    const double loss = wanted.at(iteration).loss;
    ASSERT_NEAR(step.loss, loss, 1e-4 * loss) << "step " << iteration;
  }
}

// A rank of four is killed, stopped, or stopped for a while. The first two end the run, and two
// ranks, or one, continue it on the samples that are next; the third changes nothing.
TEST_F(Peers, ContinueWithFewerOnTheSameSamples) {
  const int iterations = drill::whole() ? 300 : 40;
  const Words flags = pretrain_in_steps(folder_.path(), iterations, "1e-4") + Words{"--keep", "2"};
  std::map<std::int64_t, StepFigures> wanted;
  ASSERT_NO_FATAL_FAILURE(run_whole(flags, folder_.path(), iterations, &wanted));
  for_each_at_once(std::vector{Blow::kKill, Blow::kStop, Blow::kDelay},
                   [&](Blow blow) { continue_after(blow, flags, wanted); });
}

}  // namespace
}  // namespace piton::drill
