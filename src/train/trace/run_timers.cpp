#include "train/trace/run_timers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "session/run_sections.h"

namespace piton {
namespace {

// In the order of Megatron-LM's log, with its levels.
struct TimedPart {
  std::string_view name;
  int level;
};
constexpr TimedPart kTimedParts[] = {{kForwardBackwardSection, 1}, {kForwardSection, 2},
                                     {kBackwardSection, 2},        {kDataSection, 2},
                                     {kLoggingSection, 2},         {kGradientSumsSection, 1},
                                     {kPublishSection, 1},         {kOptimizerSection, 1}};

}  // namespace

double TimerTimes::most_ms() const { return *std::max_element(rank_ms.begin(), rank_ms.end()); }

double TimerTimes::least_ms() const {
  double least = most_ms();
  for (const double ms : rank_ms) {
    if (ms > 0) least = std::min(least, ms);
  }
  return least;
}

std::vector<std::string> timer_lines(const std::vector<TimerTimes>& times,
                                     const std::string& option) {
  if (times.empty()) return {};
  std::vector<std::string> lines;
  if (option == "all") {
    lines.push_back("times across ranks (ms):");
    for (const TimerTimes& one : times) {
      lines.push_back(fmt::format("  {}:", one.name));
      for (std::size_t rank = 0; rank < one.rank_ms.size(); ++rank) {
        if (one.rank_ms[rank] <= 0) continue;
        lines.push_back(fmt::format("     rank {:2}: {:.2f}", rank, one.rank_ms[rank]));
      }
    }
    return lines;
  }
  const bool both = option == "minmax";
  lines.push_back(both ? "(min, max) time across ranks (ms):" : "max time across ranks (ms):");
  for (const TimerTimes& one : times) {
    const std::string name = fmt::format("    {:.<48}: ", one.name + " ");
    lines.push_back(name + (both ? fmt::format("({:.2f}, {:.2f})", one.least_ms(), one.most_ms())
                                 : fmt::format("{:.2f}", one.most_ms())));
  }
  return lines;
}

void RunTimers::begin_section(std::string_view name, std::int64_t) {
  if (name == kEvaluateSection) in_evaluation_ = true;
  if (!in_evaluation_) begun_[name] = Clock::now();
}

void RunTimers::end_section(std::string_view name) {
  if (name == kEvaluateSection) in_evaluation_ = false;
  const auto begun = begun_.find(name);
  if (begun == begun_.end()) return;
  seconds_[name] += std::chrono::duration<double>(Clock::now() - begun->second).count();
  begun_.erase(begun);
}

std::vector<TimerTimes> RunTimers::take_parts(double steps, Communicator& everyone) {
  std::vector<std::string_view> names;
  for (const TimedPart& part : kTimedParts) {
    if (part.level <= level_) names.push_back(part.name);
  }
  return take(names, steps, everyone);
}

std::vector<TimerTimes> RunTimers::take_saves(Communicator& everyone) {
  return take({kSaveSection}, 1, everyone);
}

std::vector<TimerTimes> RunTimers::take_loads(Communicator& everyone) {
  return take({kLoadSection}, 1, everyone);
}

std::vector<TimerTimes> RunTimers::take(const std::vector<std::string_view>& names, double divisor,
                                        Communicator& everyone) {
  std::vector<double> mine;
  for (const std::string_view name : names) {
    const auto found = seconds_.find(name);
    mine.push_back(found == seconds_.end() ? 0 : 1e3 * found->second / divisor);
    if (found != seconds_.end()) seconds_.erase(found);
  }
  const std::size_t bytes = mine.size() * sizeof(double);
  const std::vector<std::string> all =
      everyone.gather_bytes({reinterpret_cast<const char*>(mine.data()), bytes});
  std::vector<TimerTimes> times;
  for (std::size_t i = 0; i < names.size(); ++i) {
    TimerTimes one{.name = std::string(names[i])};
    for (const std::string& theirs : all) {
      double ms = 0;
      std::memcpy(&ms, theirs.data() + i * sizeof(double), sizeof(double));
      one.rank_ms.push_back(ms);
    }
    if (one.most_ms() > 0) times.push_back(std::move(one));
  }
  return times;
}

}  // namespace piton
