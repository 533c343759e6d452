// Progress of a long job. Libraries report it; cli shows it in one line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/seconds.h"

namespace piton {

struct ProgressState {
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0: unknown
  double seconds = 0;
  std::string note;  // "12.4 MB/s, 1024 documents"
};

class Progress {
 public:
  virtual ~Progress() = default;
  // Called a few times a second at most. What it throws ends the job.
  virtual void update(const ProgressState& state) = 0;
  virtual void finish() = 0;
};

class SilentProgress final : public Progress {
 public:
  void update(const ProgressState&) override {}
  void finish() override {}
};

// Shows how far a job is: at once, then four times a second, or each `interval` seconds.
class ThrottledProgress {
 public:
  // `total`: 0: unknown.
  ThrottledProgress(Progress& progress, std::int64_t total, double interval = 0.25)
      : progress_(progress), total_(total), interval_(interval) {}

  // `note` makes the text, where it is time, or all is done.
  template <typename Note>
  void at(std::int64_t done, Note&& note) {
    const double now = seconds();
    if (now < next_ && (done < total_ || total_ == 0)) return;
    next_ = now + interval_;
    show(done, note());
  }
  // Whatever the time is.
  void show(std::int64_t done, const std::string& note) {
    progress_.update({.done = done, .total = total_, .seconds = seconds(), .note = note});
  }
  double seconds() const { return seconds_since(start_); }

 private:
  Progress& progress_;
  std::int64_t total_;
  double interval_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double next_ = 0;
};

}  // namespace piton
