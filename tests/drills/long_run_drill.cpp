// A hundred thousand steps (by day a few thousand), with metrics, TensorBoard, timers, evaluations
// and saves in the background: resident memory, threads and open files at the end are those of the
// beginning.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "drills/tiny_run.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::milliseconds;

// What a process holds at a time.
struct Held {
  double progress = 0;        // bytes of metrics so far; then the share of the whole run
  std::int64_t resident = 0;  // bytes
  std::int64_t files = 0;
  std::int64_t threads = 0;
};

// The number after `key` in a file of /proc.
std::int64_t number_after(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at + key.size());
}

std::int64_t entries_of(const std::filesystem::path& folder) {
  std::error_code error;
  std::int64_t count = 0;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    ++count;
  }
  return count;
}

Held held_by(pid_t process, const std::filesystem::path& metrics) {
  const std::filesystem::path of = "/proc/" + std::to_string(process);
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(metrics, error);
  const std::string status = text_of(of / "status");
  return {.progress = error ? 0.0 : static_cast<double>(bytes),
          .resident = number_after(status, "VmRSS:") * 1024,
          .files = entries_of(of / "fd"),
          .threads = number_after(status, "Threads:")};
}

// The samples of a share of the run.
std::vector<Held> between(const std::vector<Held>& all, double from, double to) {
  std::vector<Held> some;
  for (const Held& one : all) {
    if (one.progress >= from && one.progress < to && one.files > 0) some.push_back(one);
  }
  return some;
}

std::int64_t most(const std::vector<Held>& samples, std::int64_t Held::*what) {
  return (*std::ranges::max_element(samples, {}, what)).*what;
}
std::int64_t least(const std::vector<Held>& samples, std::int64_t Held::*what) {
  return (*std::ranges::min_element(samples, {}, what)).*what;
}

TEST(LongRun, HoldsAtTheEndWhatItHeldAtTheBeginning) {
  const std::int64_t steps = number("PITON_DRILL_ROUNDS", whole() ? 100'000 : 5'000);
  const std::string rare = std::to_string(std::max<std::int64_t>(steps / 100, 1));
  const TempFolder folder;
  const TinyRun tiny(folder.path());
  Words words = drill::with_program(tiny.pretrain("run", static_cast<int>(steps)));
  const Words more{"--num-layers",
                   "1",
                   "--hidden-size",
                   "16",
                   "--ffn-hidden-size",
                   "32",
                   "--num-attention-heads",
                   "2",
                   "--num-query-groups",
                   "2",
                   "--split",
                   "90,10,0",
                   "--save-interval",
                   rare,
                   "--keep",
                   "2",
                   "--eval-interval",
                   rare,
                   "--eval-iters",
                   "2",
                   "--log-interval",
                   "10",
                   "--timing-log-level",
                   "2",
                   "--log-timers-to-tensorboard"};
  words.insert(words.end(), more.begin(), more.end());
  const std::filesystem::path log = folder / "long.txt";
  Process process(words, {.out = log});
  const std::filesystem::path metrics = folder / "run/metrics.jsonl";
  std::vector<Held> samples;
  while (process.running()) {
    samples.push_back(held_by(process.id(), metrics));
    std::this_thread::sleep_for(milliseconds(whole() ? 20 : 2));
  }
  ASSERT_EQ(process.wait(milliseconds(0)), (ProcessEnd{.code = 0})) << text_of(log);
  const auto written = static_cast<double>(std::filesystem::file_size(metrics));
  for (Held& one : samples) one.progress /= written;

  // The first tenth warms up. At most as much as in a fifth after it, and at least too: what a save
  // needs while it is under way comes and goes.
  const std::vector<Held> first = between(samples, 0.1, 0.3);
  const std::vector<Held> last = between(samples, 0.8, 1.0);
  ASSERT_GE(first.size(), 20U) << "too few samples of " << samples.size();
  ASSERT_GE(last.size(), 20U) << "too few samples of " << samples.size();
  const auto resident = [](const std::vector<Held>& some) {
    return static_cast<double>(most(some, &Held::resident));
  };
  std::cout << steps << " steps: resident " << resident(first) * 1e-6 << " MB, then "
            << resident(last) * 1e-6 << " MB; files " << least(first, &Held::files) << " to "
            << most(first, &Held::files) << ", then " << least(last, &Held::files) << " to "
            << most(last, &Held::files) << "; threads " << least(first, &Held::threads) << " to "
            << most(first, &Held::threads) << ", then " << least(last, &Held::threads) << " to "
            << most(last, &Held::threads) << "\n";
  EXPECT_LE(resident(last), 1.01 * resident(first));
  EXPECT_EQ(least(last, &Held::files), least(first, &Held::files));
  EXPECT_EQ(least(last, &Held::threads), least(first, &Held::threads));
  EXPECT_LE(most(last, &Held::threads), most(first, &Held::threads));
}

}  // namespace
}  // namespace piton::drill
